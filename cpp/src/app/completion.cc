#include "app/completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <vector>

namespace corro::app {
namespace {

struct Word {
  std::string text;  ///< "--show"
  std::string description;
};

/// Values that are known for an option or a positional argument.
const std::map<std::string, std::string>& known_values() {
  static const std::map<std::string, std::string> kValues = {
      {"--show", "different errors all streams"},
      {"--bind", "auto none core"},
      {"--servers", "ranks"},
      {"--log-to", "tensorboard mlflow wandb"},
      {"--objective", "time cost samples_per_price"},
      {"--recompute", "none attention full offload"},
      {"--schedule", "1f1b interleaved gpipe zero_bubble"},
      {"--sequence-parallel", "on off"},
      {"--overlap", "on off"},
      {"--offload", "off optimizer gradients weights"},
      {"--dtype", "bf16 f16 f32"},
      {"--gradient-dtype", "bf16 f16 f32"},
      {"--to", "corro megatron"},
      {"--trainer", "corro megatron"},
      {"--mpijob", "all managed"},
      {"shell", "bash zsh fish"}};
  return kValues;
}

std::vector<Word> commands_of(const CLI::App& program) {
  std::vector<Word> words;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_group().empty()) continue;  // nothing to type
    words.push_back({command->get_name(), command->get_description()});
  }
  return words;
}

std::vector<Word> options_of(const CLI::App& command) {
  std::vector<Word> words;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) {
      if (name.find('_') != std::string::npos) continue;  // an old spelling
      words.push_back({"--" + name, option->get_description()});
    }
  }
  return words;
}

std::string joined(const std::vector<Word>& words) {
  std::string text;
  for (const Word& word : words) text += (text.empty() ? "" : " ") + word.text;
  return text;
}

/// A description inside single quotes.
std::string quoted(std::string text) {
  for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) {
    text.replace(at, 1, "'\\''");
  }
  return "'" + text + "'";
}

/// Cases of bash for the words behind a command, and behind a command of a command.
std::string bash_cases(const CLI::App& program, const std::string& before) {
  std::string cases;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string name = before + command->get_name();
    cases += bash_cases(*command, name + "\\ ");
    cases += fmt::format("    {}{}) words=\"{}\" commands=\"{}\" ;;\n", name,
                         before.empty() ? "\\ *" : "", joined(options_of(*command)),
                         joined(commands_of(*command)));
  }
  return cases;
}

/// What follows options whose values are known.
std::string bash_values() {
  std::string cases;
  for (const auto& [name, values] : known_values()) {
    if (name.starts_with('-')) cases += fmt::format("    {}) words=\"{}\" ;;\n", name, values);
  }
  return cases;
}

std::string write_bash(const CLI::App& program) {
  return fmt::format(R"(_corro() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} last=${{COMP_WORDS[COMP_CWORD-1]}} words commands
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{}" -- "$word"))
    return
  fi
  case $last in
{}    completion) words="{}" ;;
    --log-dir | --output-dir) COMPREPLY=($(compgen -d -- "$word")); return ;;
    --events | --model | --cluster | --params | --profile | --json | --svg | --html | --output | -o) COMPREPLY=($(compgen -f -- "$word")); return ;;
    --hostfile) COMPREPLY=($(compgen -f -- "$word")); return ;;
    --np | -np | -n | --nproc-per-node | --timeout | --long-wait | --env | -H | --hosts | --rsh | --network | --dashboard | --address | --fan-out) return ;;
  esac
  if [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{}  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  elif [ "$COMP_CWORD" -eq 2 ] && [ -n "$commands" ]; then
    COMPREPLY=($(compgen -W "$commands" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _corro corro
)",
                     joined(commands_of(program)), bash_values(), known_values().at("shell"),
                     bash_cases(program, ""));
}

/// Cases of zsh for the words behind a command, and behind a command of a command.
std::string zsh_cases(const CLI::App& program, const std::string& before) {
  std::string cases;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string name = before + command->get_name();
    cases += zsh_cases(*command, name + "\\ ");
    cases += fmt::format("    {}{})\n      _arguments", name, before.empty() ? "\\ *" : "");
    for (const Word& word : options_of(*command)) {
      const auto values = known_values().find(word.text);
      std::string text = word.text + "[" + word.description + "]";
      if (values != known_values().end()) text += ":value:(" + values->second + ")";
      cases += " \\\n        " + quoted(text);
    }
    const std::string below = joined(commands_of(*command));
    if (!below.empty()) cases += " \\\n        " + quoted("1:command:(" + below + ")");
    cases += command->get_name() == "completion" ? " '1:shell:(bash zsh fish)' ;;\n"
                                                 : " '*:file:_files' ;;\n";
  }
  return cases;
}

std::string write_zsh(const CLI::App& program) {
  std::string commands;
  for (const Word& word : commands_of(program)) {
    commands += "    " + quoted(word.text + ":" + word.description) + "\n";
  }
  return fmt::format(R"(#compdef corro
_corro() {{
  local -a commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command="$words[2] $words[3]"
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
compdef _corro corro
)",
                     commands, zsh_cases(program, ""));
}

/// Lines of fish for the options of commands, and for the commands of a command.
std::string fish_commands(const CLI::App& program, const std::string& before) {
  std::string text;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string seen =
        fmt::format("{}__fish_seen_subcommand_from {}", before, command->get_name());
    for (const Word& word : options_of(*command)) {
      const auto values = known_values().find(word.text);
      text += fmt::format("complete -c corro -n '{}' -l {} -d {}{}\n", seen, word.text.substr(2),
                          quoted(word.description),
                          values == known_values().end() ? "" : " -x -a '" + values->second + "'");
    }
    for (const Word& word : commands_of(*command)) {
      text += fmt::format("complete -c corro -n '{}' -a {} -d {}\n", seen, word.text,
                          quoted(word.description));
    }
    text += fish_commands(*command, seen + "; and ");
  }
  return text;
}

std::string write_fish(const CLI::App& program) {
  std::string text = "complete -c corro -n __fish_use_subcommand -f\n";
  for (const Word& word : commands_of(program)) {
    text += fmt::format("complete -c corro -n __fish_use_subcommand -a {} -d {}\n", word.text,
                        quoted(word.description));
  }
  text += fish_commands(program, "");
  return text +
         fmt::format("complete -c corro -n '__fish_seen_subcommand_from completion' -f -a '{}'\n",
                     known_values().at("shell"));
}

}  // namespace

std::string write_completion(const CLI::App& program, const std::string& shell) {
  if (shell == "zsh") return write_zsh(program);
  return shell == "fish" ? write_fish(program) : write_bash(program);
}

}  // namespace corro::app
