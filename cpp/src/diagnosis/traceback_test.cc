#include "diagnosis/traceback.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <string>

namespace corro::diagnosis {
namespace {

constexpr const char* kPlain =
    "some log line\n"
    "Traceback (most recent call last):\n"
    "  File \"/home/me/train.py\", line 20, in <module>\n"
    "    main()\n"
    "  File \"/home/me/train.py\", line 12, in main\n"
    "    loss = step(batch)\n"
    "           ^^^^^^^^^^^\n"
    "  File \"/venv/lib/python3.11/site-packages/torch/nn/module.py\", line 1, in forward\n"
    "    raise ValueError('x')\n"
    "ValueError: expected 3 channels, got 1\n";

TEST(ParseCrash, NamesTheErrorAndTheLastFrameOfTheUsersCode) {
  const Crash crash = parse_crash(kPlain);
  EXPECT_EQ(crash.error, "ValueError: expected 3 channels, got 1");
  EXPECT_EQ(crash.where.file, "/home/me/train.py");
  EXPECT_EQ(crash.where.line, 12);
  EXPECT_EQ(crash.where.function, "main");
  EXPECT_EQ(crash.where.code, "loss = step(batch)");
}

TEST(ParseCrash, ReadsWhatTorchDistributedWritesInFrontOfEachLine) {
  std::string prefixed;
  std::istringstream lines(kPlain);
  for (std::string line; std::getline(lines, line);) prefixed += "[rank12]: " + line + "\n";
  const Crash crash = parse_crash(prefixed);
  EXPECT_EQ(crash.error, "ValueError: expected 3 channels, got 1");
  EXPECT_EQ(crash.where.line, 12);
  EXPECT_EQ(crash.where.code, "loss = step(batch)");
}

TEST(ParseCrash, ReadsThemAlsoWhereSeveralGroupsWereMade) {
  for (const char* prefix : {"[rank1]: [rank1]: ", "[rank1]: [rank0]: [rank12]: "}) {
    std::string prefixed;
    std::istringstream lines(kPlain);
    for (std::string line; std::getline(lines, line);) prefixed += prefix + line + "\n";
    const Crash crash = parse_crash(prefixed);
    EXPECT_EQ(crash.error, "ValueError: expected 3 channels, got 1");
    EXPECT_EQ(crash.where.line, 12);
  }
}

/// What a rank says that ends with `message` after kPlain's frames.
Crash crash_with(const std::string& message) {
  return parse_crash("Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n" +
                     message);
}

constexpr const char* kReason =
    "allreduce \"Keras_1\" on rank 0 (phase negotiate): rank 1 has left the job";

// As TensorFlow 2.21 says it below a Keras, with frames that stand apart.
TEST(ParseCrash, TakesTheReasonOfAGraphFromBehindItsFrames) {
  const Crash crash = crash_with(
      "tensorflow.python.framework.errors_impl.UnknownError: Graph execution error:\n\n"
      "Detected at node Keras_1 defined at (most recent call last):\n"
      "  File \"/home/me/train.py\", line 10, in <module>\n\n"
      "  File \"/v/lib/python3.11/site-packages/keras/src/trainer.py\", line 399, in fit\n\n"
      "  File \"<string>\", line 106, in corro_allreduce\n\n" +
      std::string(kReason) +
      "\n\t [[{{node Keras_1}}]] [Op:__inference_multi_step_225]\nanother line\n");
  EXPECT_EQ(crash.error,
            "tensorflow.python.framework.errors_impl.UnknownError: Graph execution error: " +
                std::string(kReason));
  EXPECT_EQ(crash.details, "[[{{node Keras_1}}]] [Op:__inference_multi_step_225] another line");
  EXPECT_EQ(crash.where.file, "a.py");
}

// As TensorFlow 2.12 says it, with the frames' source, and where several operations have failed.
TEST(ParseCrash, TakesItFromBehindTheFirstNodesNameToo) {
  const std::string head =
      "UnknownError: Graph execution error:\n\n"
      "Detected at node 'Keras_1' defined at (most recent call last):\n"
      "    File \"/home/me/train.py\", line 10, in <module>\n      model.fit(x)\n"
      "Node: 'Keras_1'\n";
  const std::string node = "\n\t [[{{node Keras_1}}]] [Op:__inference_train_264]\n";
  EXPECT_EQ(crash_with(head + kReason + node).error,
            "UnknownError: Graph execution error: " + std::string(kReason));
  const std::string several = head + "2 root error(s) found.\n  (0) UNKNOWN:  " + kReason +
                              "\n\t [[{{node Keras_1}}]]\n\t [[x/_6]]\n  (1) UNKNOWN:  " + kReason +
                              "\n\t [[{{node Keras_1}}]]\n0 successful operations.\n";
  EXPECT_EQ(crash_with(several).error,
            "UnknownError: Graph execution error: (0) UNKNOWN:  " + std::string(kReason));
}

TEST(ParseCrash, AGraphsErrorThatIsCutOffHasNoReason) {
  const std::string head = "UnknownError: Graph execution error:";
  EXPECT_EQ(crash_with(head).error, head);
  EXPECT_EQ(crash_with(head + "\n\nDetected at node x\n").error, head);
  EXPECT_EQ(crash_with(head + "\n\t [[{{node x}}]]\n").error, head);
  EXPECT_EQ(crash_with(head + "\nTraceback (most recent call last):\nKeyError: 1\n"
                              "a\n\t [[{{node x}}]]\n")
                .error,
            "KeyError: 1");
}

TEST(ParseCrash, LeavesOutWhatTensorFlowNamesItsFunctions) {
  EXPECT_EQ(
      crash_with("UnknownError: {{function_node __inference_<lambda>_8}} allreduce: lost\n").error,
      "UnknownError: allreduce: lost");
  EXPECT_EQ(crash_with("UnknownError: {{function_node without end\n").error,
            "UnknownError: {{function_node without end");
}

TEST(ParseCrash, LeavesOutWhatJaxSaysOfItsTracebacks) {
  const Crash crash = crash_with(
      "jax.errors.JaxRuntimeError: UNAVAILABLE: lost\nin two lines\n--------------------\n"
      "For simplicity, JAX has removed its internal frames from the traceback.\n");
  EXPECT_EQ(crash.error, "jax.errors.JaxRuntimeError: UNAVAILABLE: lost");
  EXPECT_EQ(crash.details, "in two lines");
}

TEST(ParseCrash, WhatTensorFlowMakesOfCorrosOperationsIsNotTheUsers) {
  const Crash crash = parse_crash(
      "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n"
      "  File \"<string>\", line 55, in corro_allreduce\nUnknownError: x\n");
  EXPECT_EQ(crash.where.file, "a.py");
}

TEST(ParseCrash, TakesAwayWhatTorchsFuturesWrapAroundAnError) {
  const Crash crash = crash_with(
      "RuntimeError: Got the following error when running the callback: MismatchError: a and b\n");
  EXPECT_EQ(crash.error, "MismatchError: a and b");
}

TEST(ParseCrash, JoinsTheOtherLinesOfTheMessageInTheDetails) {
  const Crash crash = crash_with(
      "RuntimeError: Error(s) in loading state_dict for Net:\n"
      "\tMissing key(s) in state_dict: \"a.weight\".\r\n"
      "see the manual\n");
  EXPECT_EQ(crash.error, "RuntimeError: Error(s) in loading state_dict for Net:");
  EXPECT_EQ(crash.details, "Missing key(s) in state_dict: \"a.weight\". see the manual");
  EXPECT_EQ(crash_with("ValueError: x\na note\n").details, "a note");
  EXPECT_EQ(crash_with("ValueError: x\n").details, "");
}

TEST(ParseCrash, TheDetailsEndWhereTheMessageDoes) {
  for (const char* next : {"\n", " \t\n", "Exception ignored in: <x>\n", "--- Logging error ---\n",
                           "\r 10%|#  | 1/10\n"}) {
    EXPECT_EQ(crash_with(std::string("E: x\n  y\n") + next + "other\n").details, "y") << next;
  }
  EXPECT_EQ(crash_with("E: x\n  y\nTraceback (most recent call last):\n").details, "y");
  EXPECT_EQ(crash_with("E: x\n  y\n" + std::string(kPlain)).details, "");
  EXPECT_EQ(crash_with("E: x\n  y\nFatal Python error: Aborted\n\n").details, "");
}

TEST(ParseCrash, TheDetailsAreAFewLinesOfAFewHundredBytes) {
  EXPECT_EQ(crash_with("E: x\n 1\n 2\n 3\n 4\n 5\n 6\n 7\n").details, "1 2 3 4 5 6 ...");
  const std::string most(kMaxDetailsBytes - 1, 'x');
  EXPECT_EQ(crash_with("E: x\n " + most + "\xc3\xa4\n").details, most + "...");
}

TEST(ParseCrash, ALongOutputBehindATracebackIsNoMessage) {
  std::string output;
  for (size_t i = 0; i <= kMaxMessageLines; ++i) output += "step " + std::to_string(i) + "\n";
  EXPECT_EQ(crash_with("E: x\n  y\n" + output).details, "y");
}

TEST(ParseCrash, TakesTheLastOfChainedErrors) {
  const Crash crash = parse_crash(std::string(kPlain) +
                                  "\nDuring handling of the above exception, another exception "
                                  "occurred:\n\n"
                                  "Traceback (most recent call last):\n"
                                  "  File \"train.py\", line 30, in <module>\n"
                                  "    save()\n"
                                  "OSError: disk full\n");
  EXPECT_EQ(crash.error, "OSError: disk full");
  EXPECT_EQ(crash.where.line, 30);
}

TEST(ParseCrash, LooksIntoADataLoadersTraceback) {
  const Crash crash = parse_crash(
      "Traceback (most recent call last):\n"
      "  File \"train.py\", line 9, in <module>\n"
      "    for x in loader:\n"
      "RuntimeError: Caught KeyError in DataLoader worker process 0.\n"
      "Original Traceback (most recent call last):\n"
      "  File \"/x/site-packages/torch/fetch.py\", line 4, in fetch\n"
      "    data = self.dataset[i]\n"
      "  File \"/home/me/data.py\", line 77, in __getitem__\n"
      "    return self.rows[i]\n"
      "KeyError: 'label'\n\n");
  EXPECT_EQ(crash.error, "KeyError: 'label'");
  EXPECT_EQ(crash.where.file, "/home/me/data.py");
}

TEST(ParseCrash, ReadsExceptionGroups) {
  const Crash crash = parse_crash(
      "  + Exception Group Traceback (most recent call last):\n"
      "  |   File \"train.py\", line 3, in <module>\n"
      "  |     raise group\n"
      "  | ExceptionGroup: many (1 sub-exception)\n"
      "  +-+---------------- 1 ----------------\n"
      "    | Traceback (most recent call last):\n"
      "    |   File \"train.py\", line 2, in part\n"
      "    |     raise ValueError(1)\n"
      "    | ValueError: 1\n"
      "    |   of two lines\n"
      "    +------------------------------------\n"
      "other\n");
  EXPECT_EQ(crash.error, "ValueError: 1");
  EXPECT_EQ(crash.details, "of two lines");
  EXPECT_EQ(crash.where.line, 2);
}

TEST(ParseCrash, ReadsASyntaxErrorOfTheScriptItself) {
  const Crash crash = parse_crash(
      "  File \"/home/me/train.py\", line 3\n"
      "    print(\n"
      "         ^\n"
      "SyntaxError: '(' was never closed\n");
  EXPECT_EQ(crash.error, "SyntaxError: '(' was never closed");
  EXPECT_EQ(crash.where.line, 3);
  EXPECT_EQ(crash.where.function, "");
}

TEST(ParseCrash, ReadsPythonsFatalErrors) {
  const Crash crash = parse_crash(
      "Fatal Python error: Segmentation fault\n\n"
      "Thread 0x1 (most recent call first):\n"
      "  File \"/home/me/other.py\", line 1 in run\n\n"
      "Current thread 0x2 (most recent call first):\n"
      "  File \"/usr/lib/python3.11/ctypes/__init__.py\", line 519 in string_at\n"
      "  File \"/home/me/train.py\", line 4 in crash\n"
      "  File \"/home/me/train.py\", line 5 in <module>\n");
  EXPECT_EQ(crash.error, "Fatal Python error: Segmentation fault");
  EXPECT_EQ(crash.where.file, "/home/me/train.py");
  EXPECT_EQ(crash.where.line, 4);
}

TEST(ParseCrash, ReadsUncaughtCppExceptions) {
  const Crash crash = parse_crash(
      "terminate called after throwing an instance of 'std::runtime_error'\n"
      "  what():  no such file\n"
      "in this directory\n");
  EXPECT_EQ(crash.error, "std::runtime_error: no such file");
  EXPECT_EQ(crash.details, "in this directory");
}

TEST(ParseCrash, IgnoresExceptionsThatEndedNothing) {
  const Crash crash = parse_crash(std::string(kPlain) +
                                  "Exception ignored in: <function Pool.__del__>\n"
                                  "Traceback (most recent call last):\n"
                                  "  File \"pool.py\", line 1, in __del__\n"
                                  "AttributeError: no pool\n");
  EXPECT_EQ(crash.error, "ValueError: expected 3 channels, got 1");
}

TEST(ParseCrash, KeepsTheLastLineOfOtherPrograms) {
  const Crash crash = parse_crash("starting\ncannot open data.bin\n\n");
  EXPECT_EQ(crash.error, "");
  EXPECT_EQ(crash.last_line, "cannot open data.bin");
}

TEST(ParseCrash, SurvivesATracebackThatIsCutOffAnywhere) {
  const std::string whole = kPlain;
  for (size_t size = 0; size <= whole.size(); ++size) (void)parse_crash(whole.substr(0, size));
  for (size_t size = 0; size <= whole.size(); ++size) (void)parse_crash(whole.substr(size));
}

TEST(ParseCrash, SurvivesAnyBytes) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string text = kPlain;
    for (int i = 0; i < 30; ++i) text[random() % text.size()] = static_cast<char>(random());
    (void)parse_crash(text);
  }
}

TEST(ParseStack, IsTheInnermostFrameOfTheUsersCodeInTheLastDump) {
  const std::string first = "Stack (most recent call first):\n  File \"/me/old.py\", line 1 in f\n";
  const Frame frame = parse_stack(first +
                                  "Stack (most recent call first):\n"
                                  "  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n"
                                  "  File \"/me/data.py\", line 7 in load\n"
                                  "  File \"/me/train.py\", line 40 in <module>\n");
  EXPECT_EQ(frame.file, "/me/data.py");
  EXPECT_EQ(frame.line, 7);
  EXPECT_EQ(frame.function, "load");
  EXPECT_EQ(parse_stack(first + "Stack (most").file, "/me/old.py");
  EXPECT_EQ(parse_stack("Stack (most recent call first):\n  File \"/usr/lib/python3.11/a.py\", "
                        "line 1 in x\n")
                .file,
            "/usr/lib/python3.11/a.py");
  EXPECT_EQ(parse_stack("").file, "");
}

TEST(IsUserCode, LeavesOutLibrariesAndTheImportMachinery) {
  EXPECT_TRUE(is_user_code("/home/me/train.py"));
  EXPECT_TRUE(is_user_code("<string>"));
  EXPECT_FALSE(is_user_code("/usr/lib/python3.11/json/decoder.py"));
  EXPECT_FALSE(is_user_code("/venv/lib/python3.11/site-packages/torch/x.py"));
  EXPECT_FALSE(is_user_code("<frozen importlib._bootstrap>"));
  EXPECT_FALSE(is_user_code(""));
}

}  // namespace
}  // namespace corro::diagnosis
