// quire inspect --drafter: how much of what a drafter drafts on pages is right, and if little is, why.
#include <filesystem>
#include <optional>
#include <string>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/model_directory.h"
#include "core/error.h"
#include "doc/pages.h"
#include "io/file.h"
#include "io/json.h"
#include "measure/drafter_check.h"

namespace quire {
namespace {

using Measured = DrafterCheck::Measured;
using Verdict = DrafterCheck::Verdict;

// Each page is read once for each prompt; the variants follow.
std::size_t read_pages(const DrafterArguments& a, Target& target, DrafterCheck& check) {
  const std::vector<Input> inputs = list_inputs(a.pages, [](const std::string&) {});
  PageOptions how;
  how.max_pixels = target.preprocess_config.max_pixels;
  PageStream stream(inputs, how);
  std::size_t pages = 0;
  fmt::print("{:>7} {:>7}  page\n", "tokens", "a step");
  while (pages < static_cast<std::size_t>(a.max_pages)) {
    const std::optional<Page> page = stream.next();
    if (!page) break;
    const std::string name = page->pages == 1
                                 ? inputs[page->input].name
                                 : fmt::format("{} page {}", inputs[page->input].name, page->number);
    if (!page->error.empty()) fail(ErrorCode::invalid_input, "{}: {}", name, page->error);
    if (page->ink.uniform) continue;  // no model is asked about those
    target.show({page->image.rgb.data(), page->image.width, page->image.height});
    std::size_t tokens = 0;
    for (const PromptSetup& prompt : check.prompts()) {
      const Recording recording = target.read(prompt, check.taps(), a.max_tokens);
      check.add(recording);
      if (tokens == 0) tokens = recording.generated();
    }
    const double length = check.counts(0)[pages++].acceptance_length();
    fmt::print("{:>7} {:>7}  {}\n", tokens, length > 0 ? fmt::format("{:.2f}", length) : "-", name);
    std::fflush(stdout);
  }
  if (pages == 0) fail(ErrorCode::not_found, "{}: no page that is not blank", fmt::join(a.pages, ", "));
  return pages;
}

void print_verdict(const Verdict& v, std::size_t pages) {
  fmt::print("\n{:<48} {:<24} gain\n", "one change at a time", "tokens a step");
  for (const Measured& m : v.measured)
    fmt::print("{:<48} {:<24} {}\n", m.variant->name, text_of(m.length),
               &m == &v.measured.front() ? "" : text_of(m.gain) + (m.better ? "  better" : ""));
  fmt::print("accepted of draft 1, 2, ... as configured:");
  for (const double share : v.measured.front().counts.acceptance()) fmt::print(" {:.2f}", share);
  fmt::print("\n{} pages; in brackets {}; wider for gains: {} changes are tested\n\n{}\n", pages, kInterval,
             v.measured.size() - 1, v.text);
}

Json json_of(const Figure& f) {
  return {{"value", f.value}, {"low", f.low}, {"high", f.high}};  // NaN becomes null
}

Json json_of(const DrafterArguments& a, const std::string& model, const Verdict& v, std::size_t pages) {
  Json variants = Json::array();
  for (const Measured& m : v.measured)
    variants.push_back({{"name", m.variant->name},
                        {"acceptance_length", json_of(m.length)},
                        {"gain", json_of(m.gain)},
                        {"better", m.better},
                        {"draft_steps", m.counts.steps},
                        {"acceptance", m.counts.acceptance()}});
  return {{"what", "drafter"},
          {"model", model},
          {"drafter", a.drafter},
          {"device", device_name(find_backend(a.device))},
          {"prompt", a.prompt},
          {"max_tokens", a.max_tokens},
          {"pages_read", pages},
          {"interval", kInterval},
          {"variants", variants},  // the first as configured
          {"cause", v.cause ? Json(v.measured[*v.cause].variant->name) : Json()},
          {"low", v.low},
          {"verdict", v.text}};
}

}  // namespace

int inspect_drafter(const DrafterArguments& a) {
  if (a.pages.empty()) fail(ErrorCode::invalid_input, "inspect --drafter: give --pages");
  const std::filesystem::path model = find_model(a.model), drafter = a.drafter;
  if (!std::filesystem::exists(drafter / "config.json"))
    fail(ErrorCode::not_found, "{}: no drafter there: expected a directory with config.json", a.drafter);
  const ModelConfig config = ModelConfig::from_directory(model);
  const DrafterSetup configured{.config = DrafterConfig::from_directory(drafter, config.text),
                                .prompt = {.instruction = a.prompt}};
  check_vocabulary(drafter, config);
  const Backend& backend = find_backend(a.device);
  fmt::print("{}, drafts of {}; {}; at most {} tokens a page\n", model.string(), drafter.string(),
             device_name(backend), a.max_tokens);
  Target target(model, backend, a.threads);
  const DrafterCheckpoint checkpoint(drafter, configured.config, backend, target.stream);
  DrafterCheck check(target, checkpoint.weights, configured);
  const std::size_t pages = read_pages(a, target, check);
  const Verdict verdict = check.verdict();
  if (verdict.measured.front().counts.steps == 0)
    fail(ErrorCode::invalid_input, "{}: too little text to measure: give other pages, or more --max-tokens",
         fmt::join(a.pages, ", "));
  print_verdict(verdict, pages);
  if (!a.json.empty())
    write_file_atomically(
        a.json,
        json_of(a, model.string(), verdict, pages).dump(1, ' ', false, Json::error_handler_t::replace) +
            "\n");
  return verdict.fine() ? kExitOk : kExitIncomplete;
}

}  // namespace quire
