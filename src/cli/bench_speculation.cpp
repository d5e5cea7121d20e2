// quire bench --spec: what a drafter is worth on pages. The engine reads each of them twice, with drafts and
// without.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/model_directory.h"
#include "core/error.h"
#include "doc/pages.h"
#include "doc/repetition.h"
#include "io/file.h"
#include "io/json.h"
#include "measure/figure.h"
#include "quire/quire.h"
#include "vision/preprocess.h"

namespace quire {
namespace {

// A page read both ways.
struct PagePair {
  std::string page;
  Result plain, drafted;

  bool equal() const { return plain.tokens == drafted.tokens; }
  bool has_steps() const { return drafted.drafts.steps > 0; }
};

// --- what is said of all pages ---------------------------------------------------------------------------

// Pages that end with the first step are left out.
Figure figure_of(const std::vector<PagePair>& pages, const std::function<Share(const PagePair&)>& share) {
  std::vector<Share> shares;
  for (const PagePair& p : pages)
    if (p.has_steps()) shares.push_back(share(p));
  return figure_of(shares);
}

// The first token is the prompt's.
Share tokens_per_second(const Result& r) {
  return {static_cast<double>(r.tokens.size()) - 1, r.seconds.decode};
}

struct Figures {
  explicit Figures(const std::vector<PagePair>& pages)
      : acceptance_length(figure_of(pages,
                                    [](const PagePair& p) {
                                      const DraftCounts& d = p.drafted.drafts;
                                      return Share{1.0 * d.tokens, 1.0 * d.steps};
                                    })),
        plain(figure_of(pages, [](const PagePair& p) { return tokens_per_second(p.plain); })),
        drafted(figure_of(pages, [](const PagePair& p) { return tokens_per_second(p.drafted); })),
        speedup(figure_of(pages, [](const PagePair& p) {
          return p.equal() ? Share{p.plain.seconds.decode, p.drafted.seconds.decode} : Share();
        })) {
    for (const PagePair& p : pages) counts += p.drafted.drafts;
    for (std::size_t i = 0; i < counts.drafted.size(); ++i)
      acceptance.push_back(figure_of(pages, [&](const PagePair& p) {
        const DraftCounts& d = p.drafted.drafts;
        return i < d.drafted.size() ? Share{1.0 * d.accepted[i], 1.0 * d.drafted[i]} : Share();
      }));
  }

  DraftCounts counts;  // of all pages
  Figure acceptance_length;
  std::vector<Figure> acceptance;  // of draft 1, 2, ...
  Figure plain, drafted;           // tokens a second
  Figure speedup;                  // of pages with equal texts
};

// --- reading ---------------------------------------------------------------------------------------------

Result read(Engine& engine, const BenchArguments& a, const Image& image, int max_tokens) {
  RepetitionDetector repetition;
  Request request;
  request.image = {image.rgb.data(), image.width, image.height};
  request.max_tokens = max_tokens;
  request.sampling.temperature = a.temperature;
  request.sampling.seed = a.seed;
  request.on_text = [&](std::string_view text) { return !repetition.push(text); };
  return engine.generate(request);
}

void print_page(const PagePair& p) {
  const auto rate = [](const Result& r) { return ratio_of(std::vector{tokens_per_second(r)}); };
  const DraftCounts& d = p.drafted.drafts;
  const std::string figures =
      p.has_steps() ? fmt::format("{:>7.2f} {:>8.0f} {:>8.0f} {:>7.2f}", d.acceptance_length(), rate(p.plain),
                                  rate(p.drafted), p.plain.seconds.decode / p.drafted.seconds.decode)
                    : fmt::format("{:>7} {:>8} {:>8} {:>7}", "-", "-", "-", "-");
  fmt::print("{:>7} {:>6} {}  {:<7}  {}\n", p.drafted.tokens.size(), d.steps, figures,
             p.equal() ? "equal" : "differs", p.page);
  std::fflush(stdout);
}

// One page after the other, each read plainly and then with drafts, so that whatever else the machine does
// befalls both.
std::vector<PagePair> read_pages(const BenchArguments& a, Options options) {
  const std::vector<Input> inputs = list_inputs(a.pages, [](const std::string&) {});
  PageOptions how;
  how.max_pixels = PreprocessConfig::from_directory(options.model).max_pixels;
  options.draft = "none";
  Engine plain(options);
  options.draft = a.draft;
  options.switches +=
      fmt::format("{}window={}", options.switches.empty() ? "" : ",", a.window > 0 ? a.window : kMostWindow);
  Engine drafting(options);
  PageStream stream(inputs, how);
  std::vector<PagePair> pages;
  while (const std::optional<Page> page = stream.next()) {
    const std::string name = page->pages == 1
                                 ? inputs[page->input].name
                                 : fmt::format("{} page {}", inputs[page->input].name, page->number);
    if (!page->error.empty()) fail(ErrorCode::invalid_input, "{}: {}", name, page->error);
    if (page->ink.uniform) continue;  // no model is asked about those
    if (pages.empty()) {
      constexpr int kWarmUp = 8;  // tokens: kernels are loaded, graphs recorded
      for (Engine* engine : {&plain, &drafting})
        read(*engine, a, page->image, std::min(kWarmUp, a.max_tokens));
    }
    pages.push_back(
        {name, read(plain, a, page->image, a.max_tokens), read(drafting, a, page->image, a.max_tokens)});
    print_page(pages.back());
  }
  if (pages.empty()) fail(ErrorCode::not_found, "{}: no page that is not blank", fmt::join(a.pages, ", "));
  return pages;
}

// --- telling ---------------------------------------------------------------------------------------------

void print_figures(const Figures& f, std::size_t pages, std::size_t equal) {
  fmt::print("\n{} pages, {} texts equal; {} steps of {} rows\n", pages, equal, f.counts.steps,
             f.counts.drafted.size() + 1);
  fmt::print("tokens a step        {}\n", text_of(f.acceptance_length));
  fmt::print("tokens/s plain       {}\n", text_of(f.plain));
  fmt::print("tokens/s with drafts {}\n", text_of(f.drafted));
  fmt::print("times as fast        {}\n", text_of(f.speedup));
  for (std::size_t i = 0; i < f.acceptance.size(); ++i)
    fmt::print("draft {:>2} accepted    {}\n", i + 1, text_of(f.acceptance[i]));
  fmt::print("in brackets {}\n", kInterval);
}

Json json_of(const Figure& f) {
  return {{"value", f.value}, {"low", f.low}, {"high", f.high}};  // NaN becomes null
}

Json json_of(const PagePair& p) {
  const DraftCounts& d = p.drafted.drafts;
  return {{"page", p.page},
          {"tokens", p.drafted.tokens.size()},
          {"finish_reason", to_string(p.drafted.finish_reason)},
          {"equal", p.equal()},
          {"draft_steps", d.steps},
          {"draft_tokens", d.tokens},
          {"acceptance_length", d.acceptance_length()},
          {"drafted", d.drafted},
          {"accepted", d.accepted},
          {"plain_decode_seconds", p.plain.seconds.decode},
          {"decode_seconds", p.drafted.seconds.decode}};
}

Json json_of(const BenchArguments& a, const Options& options, const std::vector<PagePair>& pages,
             std::size_t equal, const Figures& f) {
  Json acceptance = Json::array(), list = Json::array();
  for (const Figure& position : f.acceptance) acceptance.push_back(json_of(position));
  for (const PagePair& p : pages) list.push_back(json_of(p));
  return {{"what", "speculation"},
          {"model", options.model},
          {"draft", a.draft},
          {"device", device_name(find_backend(a.device))},
          {"switches", a.switches},
          {"window", f.counts.drafted.size() + 1},
          {"temperature", a.temperature},
          {"seed", a.seed},
          {"max_tokens", a.max_tokens},
          {"pages_read", pages.size()},
          {"equal_texts", equal},
          {"draft_steps", f.counts.steps},
          {"draft_tokens", f.counts.tokens},
          {"interval", kInterval},
          {"acceptance_length", json_of(f.acceptance_length)},
          {"acceptance", acceptance},
          {"plain_tokens_per_second", json_of(f.plain)},
          {"tokens_per_second", json_of(f.drafted)},
          {"speedup", json_of(f.speedup)},
          {"pages", list}};
}

}  // namespace

int bench_speculation(const BenchArguments& a) {
  if (a.pages.empty() || a.draft.empty() || !a.shape.empty())
    fail(ErrorCode::invalid_input, "bench --spec: give --pages and --draft, and no --shape");
  const Backend& backend = find_backend(a.device);
  const Options options{.model = find_model(a.model).string(),
                        .device = backend.host_memory ? Device::cpu : Device::cuda,
                        .threads = a.threads,
                        .requests = 1,
                        .switches = a.switches};
  fmt::print("{}, drafts of {}; {}; one page at a time, temperature {}\n", options.model, a.draft,
             device_name(backend), a.temperature);
  fmt::print("{:>7} {:>6} {:>7} {:>8} {:>8} {:>7}  {:<7}  page\n", "tokens", "steps", "a step", "plain/s",
             "drafts/s", "times", "text");
  const std::vector<PagePair> pages = read_pages(a, options);
  const auto equal = static_cast<std::size_t>(std::ranges::count_if(pages, &PagePair::equal));
  const Figures figures(pages);
  print_figures(figures, pages.size(), equal);
  if (!a.json.empty())
    write_file_atomically(a.json, json_of(a, options, pages, equal, figures).dump(1) + "\n");
  return equal == pages.size() ? kExitOk : kExitIncomplete;
}

}  // namespace quire
