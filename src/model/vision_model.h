// The vision encoder: patches of a page in, one feature row for each image token out.
#pragma once

#include "model/step.h"
#include "model/weights.h"

namespace quire {

class VisionModel {
 public:
  // All references must outlive the model.
  VisionModel(const VisionConfig& config, const VisionWeights& weights, const Backend& backend,
              Format format);

  // pixels [grid_height * grid_width, patch_dim] f32 in merge-block order, in the host's memory -> features
  // [grid_height * grid_width / merge^2, out_hidden] in the backend's, valid until the next call. Memory is
  // kept from call to call, and grows with the page. Throws Error{out_of_memory}.
  Rows encode(Stream& stream, std::span<const float> pixels, int grid_height, int grid_width,
              const Probe* probe = nullptr);

 private:
  const VisionConfig& config_;
  const VisionWeights& weights_;
  const Backend& backend_;
  const Ops& ops_;
  Format format_;
  Memory memory_;  // of the activations of a page
};

}  // namespace quire
