// The batch driver behind `quire parse`: every page of every input to a record, every document to its files.
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "doc/pages.h"
#include "doc/record.h"
#include "doc/status.h"
#include "quire/quire.h"

namespace quire {

enum class OutputFormat { markdown, json };

struct ParseJob {
  std::vector<Input> inputs;
  PageOptions pages;
  Request request;               // prompt and limits; image and on_text belong to each page
  std::filesystem::path folder;  // where NAME.md and NAME.json go; empty: `write`
  OutputFormat format = OutputFormat::markdown;
  bool timings = false;  // a line on each page, and one on all
  int parallel = 1;      // pages that are read at the same time
  RunIdentity run;
};

struct ParseTotals {
  int ok = 0, truncated = 0, blank = 0, failed = 0;
  DraftCounts drafts;
  bool interrupted = false;

  int pages() const { return ok + truncated + blank + failed; }
};

// Runs the job. `generate` is the engine, called from as many threads as pages are read at the same time;
// what it throws is the failure of that page alone. `write` receives what belongs on standard output, a page
// or a document at a time, in the order of the pages. Once `stop` is requested the pages in hand are given up
// and everything finished is on disk. Throws Error{io} only when output cannot be written.
ParseTotals parse(const ParseJob& job, const std::function<Result(const Request&)>& generate,
                  const std::function<void(std::string_view)>& write, Progress& progress,
                  std::stop_token stop);

// The NAME of each input's output files, all different: the file's name without its extension; where two
// inputs would share one, their names with extension; where those are equal too, "-2", "-3", ... is added.
// Cut off where the file system could not hold them.
std::vector<std::string> output_names(const std::vector<Input>& inputs);

}  // namespace quire
