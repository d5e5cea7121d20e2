// Chat templates: the subset of Jinja2 that published templates of the family use, with white space handled as
// Hugging Face sets it (trim_blocks, lstrip_blocks). for, if, set, macro, namespace, break, continue, generation;
// every operator but **; slices; the filters, tests and methods of src/text/jinja/filters.cpp and access.cpp.
// A construct that is not supported is an Error{unsupported} naming it and its line.
// Any template ends: rendering is bounded in work, memory and depth (Error{limit_exceeded}).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// One part of a message's content, in order.
struct ContentPart {
  enum class Kind { text, image };
  Kind kind = Kind::text;
  std::string text;  // of a text part
};

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::vector<ContentPart> content;
};

class ChatTemplate {
 public:
  // Parses. Throws Error{invalid_input} for a syntax error, Error{unsupported} for a construct outside the
  // subset.
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // The template of a model directory: chat_template.jinja, else the field `chat_template` of
  // chat_template.json or tokenizer_config.json (a list of named ones: "default").
  // Throws Error{not_found} saying where it looked.
  static ChatTemplate from_directory(const std::filesystem::path& model);

  // The prompt of a conversation, with the generation prompt added; a message of one text part is passed as a
  // plain string, as clients do. Throws Error{invalid_input} with the template's own message for
  // raise_exception.
  std::string render(const std::vector<Message>& messages, bool enable_thinking) const;

  // The same on any variables, as JSON text {"messages": [...], "add_generation_prompt": true, ...}.
  std::string render_json(std::string_view variables) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
