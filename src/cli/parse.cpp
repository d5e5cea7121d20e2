// quire parse: options to a ParseJob, and the exit code.
#include "doc/parse.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_directory.h"
#include "core/error.h"
#include "vision/preprocess.h"

namespace quire {
namespace {

struct ParseArguments {
  std::vector<std::string> inputs;
  std::string output, pages, password, model;
  std::string format = "md";
  std::string dtype = "bf16";
  Request request;
  double dpi = 0;
  int threads = 0;
  bool timings = false;
  bool quiet = false;
};

constexpr const char* kFooter =
    "Inputs are recognised by content. Of a folder its documents are taken, one level deep, in natural "
    "order\n"
    "(page2 before page10). Without -o the Markdown goes to standard output; all else goes to standard "
    "error.\n"
    "With -o each input gives NAME.md and NAME.json; where two inputs share a NAME, the extension is kept, "
    "then\n"
    "-2, -3, ... is added. A page that is not ok leaves a comment in the Markdown.\n"
    "\n"
    "Exit code: 0 every page ok or blank; 1 some page truncated or failed; 2 wrong usage, no model, nothing "
    "to\n"
    "do; 130 interrupted.";

void add_options(CLI::App& app, ParseArguments& a) {
  app.add_option("INPUT", a.inputs, "Pictures (PNG, JPEG, WebP, TIFF, BMP, GIF), PDFs, folders, - for stdin")
      ->required();
  app.add_option("-o,--output", a.output, "Write NAME.md and NAME.json into this folder")->type_name("DIR");
  app.add_option("--pages", a.pages, "Pages of each document, as in 1-3,7,10-")->type_name("LIST");
  app.add_option("--dpi", a.dpi, "Resolution of PDF pages (default: as much as the model can use)")
      ->check(CLI::Range(10.0, 1200.0))
      ->type_name("N");
  app.add_option("--password", a.password, "Password of encrypted PDFs")->type_name("P");
  app.add_option("--prompt", a.request.prompt, "Instruction to the model")->capture_default_str();
  app.add_option("--max-tokens", a.request.max_tokens, "Most tokens a page")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--max-seconds", a.request.max_seconds, "Most seconds a page; 0: no limit")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str()
      ->type_name("S");
  app.add_option("--model", a.model, "Model directory (default: $QUIRE_MODEL, else models/quire-mini)")
      ->type_name("DIR");
  app.add_option("--threads", a.threads, "CPU threads; 0: one for each core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--format", a.format, "md: Markdown; json: records with the text in them")
      ->check(CLI::IsMember({"md", "json"}))
      ->capture_default_str()
      ->type_name("F");
  app.add_option("--dtype", a.dtype, "Arithmetic: bf16, or f32 (slower, for comparisons)")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str()
      ->type_name("T");
  app.add_flag("--timings", a.timings, "Say where the time goes, for each page and in all");
  app.add_flag("--quiet", a.quiet, "Say nothing but what goes wrong");
  app.footer(kFooter);
}

// Everything that decides what a page gives, the model left out. One field a line; the prompt comes last, so
// that no prompt looks like a field.
std::string options_hash(const ParseArguments& a, const PageOptions& pages) {
  return content_hash(fmt::format("dtype {}\nmax_tokens {}\nmax_seconds {}\ndpi {}\nmax_pixels {}\nprompt {}",
                                  a.dtype, a.request.max_tokens, a.request.max_seconds, a.dpi,
                                  pages.max_pixels, a.request.prompt));
}

void write_to_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail(ErrorCode::io, "standard output: cannot be written");
}

std::string summary(const ParseTotals& totals, double seconds) {
  std::string text =
      fmt::format("{} page{} in {:.1f} s ({:.2f} pages/s): {} ok", totals.pages(),
                  totals.pages() == 1 ? "" : "s", seconds, totals.pages() / seconds, totals.ok);
  if (totals.blank > 0) text += fmt::format(", {} blank", totals.blank);
  if (totals.truncated > 0) text += fmt::format(", {} truncated", totals.truncated);
  if (totals.failed > 0) text += fmt::format(", {} failed", totals.failed);
  return text;
}

int run(const ParseArguments& a) {
  const Interrupt interrupt;
  ParseJob job;
  job.request = a.request;
  job.folder = a.output;
  job.format = a.format == "json" ? OutputFormat::json : OutputFormat::markdown;
  job.timings = a.timings;
  if (!a.pages.empty()) job.pages.ranges = parse_page_ranges(a.pages);
  job.pages.password = a.password;
  job.pages.dpi = a.dpi;

  Progress progress(stderr, Progress::style_for(stderr, a.quiet));
  job.inputs = list_inputs(a.inputs, [&](const std::string& name) {
    progress.note(name + ": left out, neither a picture nor a PDF");
  });
  if (job.inputs.empty())
    fail(ErrorCode::not_found, "{}: no picture or PDF in there", fmt::join(a.inputs, ", "));

  const std::filesystem::path model = find_model(a.model);
  job.pages.max_pixels = PreprocessConfig::from_directory(model).max_pixels;
  job.run = {model.string(), model_hash(model), options_hash(a, job.pages)};
  Engine engine({.model = model.string(),
                 .precision = a.dtype == "f32" ? Precision::f32 : Precision::bf16,
                 .threads = a.threads});

  const ParseTotals totals = parse(
      job, [&](const Request& request) { return engine.generate(request); }, write_to_stdout, progress,
      interrupt.token());
  if (totals.interrupted) return kExitInterrupted;
  progress.note(summary(totals, progress.seconds()));
  return totals.truncated + totals.failed > 0 ? kExitIncomplete : kExitOk;
}

}  // namespace

int parse_command(int argc, char** argv) {
  ParseArguments arguments;
  CLI::App app("Reads document pages and writes them as Markdown.", "quire parse");
  add_options(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    fail(ErrorCode::invalid_input, "parse: {} (see quire parse --help)", error.what());
  }
  if (std::isnan(arguments.dpi) || std::isnan(arguments.request.max_seconds))  // passes CLI::Range
    fail(ErrorCode::invalid_input, "parse: nan is no value for --dpi or --max-seconds");
  return run(arguments);
}

}  // namespace quire
