#include "launch/python_line.h"

#include <gtest/gtest.h>

namespace corro::launch {
namespace {

using Words = std::vector<std::string>;

std::string script_of(const Words& words) {
  const auto target = python_target(words);
  return target && !target->module ? target->name : "";
}

std::string module_of(const Words& words) {
  const auto target = python_target(words);
  return target && target->module ? target->name : "";
}

TEST(IsPython, KnowsItsNames) {
  for (const char* name : {"python", "python3", "python3.11", "/opt/venv/bin/python3.13"}) {
    EXPECT_TRUE(is_python(name)) << name;
  }
  for (const char* name : {"pythonw", "ipython", "python-config", "./my_python", ""}) {
    EXPECT_FALSE(is_python(name)) << name;
  }
}

TEST(PythonTarget, IsTheScriptBehindTheOptions) {
  EXPECT_EQ(script_of({"python", "train.py", "-m", "x"}), "train.py");
  EXPECT_EQ(script_of({"python", "-u", "-OO", "-Wignore", "-X", "dev", "a/b.py"}), "a/b.py");
  EXPECT_EQ(script_of({"python", "-uW", "ignore", "--check-hash-based-pycs", "always", "x"}), "x");
}

TEST(PythonTarget, IsTheModuleOfM) {
  EXPECT_EQ(module_of({"python", "-m", "my.train", "x.py"}), "my.train");
  EXPECT_EQ(module_of({"python", "-um", "my.train"}), "my.train");
  EXPECT_EQ(module_of({"python", "-mmy.train"}), "my.train");
}

TEST(PythonTarget, IsNothingThatIsNotCertain) {
  for (const Words& words : {Words{"python"},
                             {"python", "-c", "pass", "x.py"},
                             {"python", "-ucpass", "x.py"},
                             {"python", "-", "x.py"},
                             {"python", "-h", "x.py"},
                             {"python", "--new-option", "x.py"},
                             {"python", "-m"},
                             {"python", "-X"}}) {
    EXPECT_FALSE(python_target(words)) << words.back();
  }
}

}  // namespace
}  // namespace corro::launch
