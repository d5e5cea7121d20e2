// What a run writes down about each page and document, as JSON. README.md describes the format; programs read
// it, so fields are added, never renamed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "doc/status.h"
#include "quire/quire.h"

namespace quire {

inline constexpr int kRecordSchema = 1;

struct PageSeconds {
  double decode_image = 0, preprocess = 0, queue = 0, vision = 0, prefill = 0, decode = 0;
  double steps = 0;  // of decode, as in Timings
  double total() const { return decode_image + preprocess + queue + vision + prefill + decode; }
  PageSeconds& operator+=(const PageSeconds& other);
};

struct PageRecord {
  int page = 0;  // from 1; 0: the whole input
  PageStatus status = PageStatus::failed;
  std::string reason;  // why it is not ok: "length", "time_limit", "repetition"; "uniform", "empty",
                       // "no_ink"; an error
  int width = 0;       // of the page image, pixels
  int height = 0;
  double ink = 0;             // share of pixels that stand out from the paper
  int tokens = 0;             // generated
  int image_tokens = 0;       // that the page took in the prompt
  std::string finish_reason;  // of the engine; "" when the model was not asked
  double mean_logprob = 0;    // natural log, over the generated tokens
  double min_logprob = 0;
  DraftCounts drafts;
  int turned = 0;  // degrees clockwise by which the page was turned before it was read
  PageSeconds seconds;
  std::string text;  // Markdown
};

// What makes two runs comparable: a finished page of another run can stand for one of this run when all
// agree.
struct RunIdentity {
  std::string model;         // as it was given
  std::string model_hash;    // of what the model directory holds
  std::string options_hash;  // of the options that change the output
};

struct DocumentRecord {
  std::string input;       // as it was given
  std::string input_hash;  // XXH3-128 of its bytes
  std::int64_t input_bytes = 0;
  RunIdentity run;
  std::vector<PageRecord> pages;
};

// A document as a JSON object: one line, or indented. Bytes that are not UTF-8 become U+FFFD.
std::string to_json(const DocumentRecord& document, bool with_text, bool one_line);

// One page with all that tells to which document and run it belongs. With its text.
std::string page_to_json(const DocumentRecord& document, const PageRecord& page);

}  // namespace quire
