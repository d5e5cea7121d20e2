// Whether a sanitizer watches: a page of quire-mini then takes minutes, and smaller tests run the same code.
#pragma once

namespace quire {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace quire
