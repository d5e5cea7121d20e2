#include "doc/record.h"

#include <array>
#include <cmath>

#include "io/json.h"

namespace quire {
namespace {

// Six decimals are a microsecond or a millionth of a nat; more would only be noise in the file.
double rounded(double x) {
  return std::isfinite(x) ? std::round(x * 1e6) / 1e6 : 0;
}

Json seconds_json(const PageSeconds& seconds) {
  return {{"decode_image", rounded(seconds.decode_image)},
          {"preprocess", rounded(seconds.preprocess)},
          {"queue", rounded(seconds.queue)},
          {"vision", rounded(seconds.vision)},
          {"prefill", rounded(seconds.prefill)},
          {"decode", rounded(seconds.decode)},
          {"steps", rounded(seconds.steps)}};
}

// Nothing without drafts.
void add_acceptance(Json& json, const DraftCounts& drafts) {
  if (drafts.steps == 0) return;
  json["draft_steps"] = drafts.steps;
  json["acceptance_length"] = rounded(drafts.acceptance_length());
  json["acceptance"] = Json::array();
  for (const double share : drafts.acceptance()) json["acceptance"].push_back(rounded(share));
}

Json page_json(const PageRecord& page, bool with_text) {
  Json json = {{"page", page.page}, {"status", to_string(page.status)}};
  if (!page.reason.empty()) json["reason"] = page.reason;
  json["width"] = page.width;
  json["height"] = page.height;
  json["ink"] = rounded(page.ink);
  json["tokens"] = page.tokens;
  json["image_tokens"] = page.image_tokens;
  if (!page.finish_reason.empty()) {
    json["finish_reason"] = page.finish_reason;
    json["mean_logprob"] = rounded(page.mean_logprob);
    json["min_logprob"] = rounded(page.min_logprob);
    add_acceptance(json, page.drafts);
  }
  if (page.turned) json["turned"] = page.turned;
  json["seconds"] = seconds_json(page.seconds);
  if (with_text) json["text"] = page.text;
  return json;
}

Json head_json(const DocumentRecord& document) {
  return {{"schema", kRecordSchema},
          {"input",
           {{"path", document.input}, {"bytes", document.input_bytes}, {"xxh3_128", document.input_hash}}},
          {"model", {{"path", document.run.model}, {"xxh3_128", document.run.model_hash}}},
          {"options_xxh3_128", document.run.options_hash}};
}

std::string dump(const Json& json, bool one_line) {
  return json.dump(one_line ? -1 : 1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

PageSeconds& PageSeconds::operator+=(const PageSeconds& other) {
  decode_image += other.decode_image;
  preprocess += other.preprocess;
  queue += other.queue;
  vision += other.vision;
  prefill += other.prefill;
  decode += other.decode;
  steps += other.steps;
  return *this;
}

std::string to_json(const DocumentRecord& document, bool with_text, bool one_line) {
  Json json = head_json(document);
  Json pages = Json::array();
  Json counts = Json::object();
  for (const PageStatus status :
       {PageStatus::ok, PageStatus::truncated, PageStatus::blank, PageStatus::failed})
    counts[std::string(to_string(status))] = 0;
  std::int64_t tokens = 0;
  DraftCounts drafts;
  PageSeconds seconds;
  for (const PageRecord& page : document.pages) {
    pages.push_back(page_json(page, with_text));
    Json& count = counts[std::string(to_string(page.status))];
    count = count.get<int>() + 1;
    tokens += page.tokens;
    drafts += page.drafts;
    seconds += page.seconds;
  }
  json["pages"] = std::move(pages);
  json["totals"] = {{"pages", document.pages.size()}};
  json["totals"].update(counts);
  json["totals"]["tokens"] = tokens;
  add_acceptance(json["totals"], drafts);
  json["totals"]["seconds"] = seconds_json(seconds);
  return dump(json, one_line);
}

std::string page_to_json(const DocumentRecord& document, const PageRecord& page) {
  Json json = head_json(document);
  json.update(page_json(page, true));
  return dump(json, false);
}

}  // namespace quire
