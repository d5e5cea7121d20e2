#include "text/chat_template.h"

#include <optional>
#include <utility>

#include "core/error.h"
#include "io/file.h"
#include "io/json.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/syntax.h"
#include "text/unicode/unicode.h"

namespace quire {
namespace {

using Members = std::vector<std::pair<std::string, jinja::Value>>;

constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;

jinja::Value text_value(const std::string& text) {
  return replace_invalid_utf8(text);
}

jinja::Value content_value(const std::vector<ContentPart>& content) {
  if (content.size() == 1 && content[0].kind == ContentPart::Kind::text) return text_value(content[0].text);
  std::vector<jinja::Value> parts;
  for (const ContentPart& part : content) {
    if (part.kind == ContentPart::Kind::image)
      parts.emplace_back(Members{{"type", "image"}});
    else
      parts.emplace_back(Members{{"type", "text"}, {"text", text_value(part.text)}});
  }
  return parts;
}

// The field "chat_template": a string, or a list of {name, template} of which "default" is taken.
std::optional<std::string> template_field(const Json& config, const std::filesystem::path& file) {
  const auto field = config.is_object() ? config.find("chat_template") : config.end();
  if (!config.is_object() || field == config.end() || field->is_null()) return std::nullopt;
  if (field->is_string()) return field->get<std::string>();
  if (field->is_array()) {
    for (const Json& entry : *field)
      if (entry.is_object() && entry.value("name", Json()) == "default" &&
          entry.value("template", Json()).is_string())
        return entry.at("template").get<std::string>();
  }
  fail(ErrorCode::invalid_input,
       "{}: \"chat_template\" must be a string or a list with a template named default", file.string());
}

}  // namespace

struct ChatTemplate::State {
  jinja::Block block;
};

ChatTemplate::ChatTemplate(std::string_view source)
    : state_(std::make_unique<State>(State{jinja::parse(source)})) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate ChatTemplate::from_directory(const std::filesystem::path& model) {
  const std::filesystem::path jinja = model / "chat_template.jinja";
  if (std::filesystem::exists(jinja)) return ChatTemplate(read_file(jinja, kMaxTemplateBytes));
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    const std::filesystem::path file = model / name;
    if (!std::filesystem::exists(file)) continue;
    if (const auto source = template_field(read_json(file), file)) return ChatTemplate(*source);
  }
  fail(ErrorCode::not_found,
       "no chat template in {}: looked for chat_template.jinja and for \"chat_template\" in "
       "chat_template.json and "
       "tokenizer_config.json",
       model.string());
}

std::string ChatTemplate::render(const std::vector<Message>& messages, bool enable_thinking) const {
  std::vector<jinja::Value> list;
  for (const Message& message : messages)
    list.emplace_back(
        Members{{"role", text_value(message.role)}, {"content", content_value(message.content)}});
  // "tools" and "documents" are always there in the environment that templates are written for.
  return jinja::render(state_->block, Members{{"messages", std::move(list)},
                                              {"tools", {}},
                                              {"documents", {}},
                                              {"add_generation_prompt", true},
                                              {"enable_thinking", enable_thinking}});
}

std::string ChatTemplate::render_json(std::string_view variables) const {
  const Json json = parse_json(variables, "chat template variables");
  if (!json.is_object()) fail(ErrorCode::invalid_input, "chat template variables: expected a JSON object");
  return jinja::render(state_->block, jinja::from_json(json));
}

}  // namespace quire
