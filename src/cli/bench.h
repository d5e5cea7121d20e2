// What measurements share: those of `quire bench`, and of a drafter by `quire inspect`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "quire/quire.h"

namespace quire {

struct BenchArguments {
  std::string shape, model, draft, device = "auto", switches, json, rival;
  std::vector<int> batches = {1, 8, 12, 32};
  std::vector<std::int64_t> contexts = {1024, 4096};
  int window = 0;  // 0: not given
  int accept = 0;
  int steps = 50;
  int threads = 0;
  bool explain = false, metadata = false, policy = false;

  // Of --spec.
  bool speculation = false;
  std::vector<std::string> pages;
  int max_tokens = 4096;
  double temperature = 0;
  std::uint64_t seed = 0;
};

// What `quire inspect` is asked about a drafter.
struct DrafterArguments {
  std::string model, drafter, device = "auto", json;
  std::vector<std::string> pages;
  std::string prompt = Request().prompt;
  int max_pages = 8;
  int max_tokens = 128;
  int threads = 0;
};

// Throws Error{not_found} when there is no such device.
const Backend& find_backend(const std::string& device);
std::string device_name(const Backend& backend);

// Reads pages with drafts and without; the exit code.
int bench_speculation(const BenchArguments& arguments);
// Measures a drafter on pages, and its settings one at a time; the exit code.
int inspect_drafter(const DrafterArguments& arguments);

}  // namespace quire
