// What the measurements of `quire bench` share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"

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

// Throws Error{not_found} when there is no such device.
const Backend& find_backend(const std::string& device);
std::string device_name(const Backend& backend);

// Reads pages with drafts and without; the exit code.
int bench_speculation(const BenchArguments& arguments);

}  // namespace quire
