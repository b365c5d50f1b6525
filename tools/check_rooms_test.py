"""Counts the methods of classes in our style, and plants rooms that are too large."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_rooms import check, classes, main

ROOM = """\
// class Comment { void no(); };
template <typename T>
class CORRO_CAPABILITY("room") Room final : public graph::Lane, private std::map<int, int> {
 public:
  using Made = std::function<void(int)>;
  enum class Look : uint8_t { kFar = size_t(1) };
  explicit Room(int x) : x_(x), list_{1, 2}, made_(x) {}
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() override { close(); }
  static_assert(sizeof(int) == 4);

  /// Says say(); "it".
  [[nodiscard]] static Result<std::unique_ptr<Room>> create(Options options);
  [[nodiscard]] const std::map<int, std::pair<int, int>>& get() const { return map_; }
  void poll(Time now = Time{}, const char* text = "}{");
  void poll() CORRO_ACQUIRE(mutex_);
  virtual bool start(Time /*now*/) = 0;
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& one : list_) visit(one);
  }
  std::function<void(Room&)> ask;

 private:
  friend class Other;
  friend bool operator==(const Room&, const Room&) = default;
  struct Entry {
    int x = 0;
    [[nodiscard]] bool empty() const { return x == 0; }
  };
  [[nodiscard]] std::optional<
      int>
  split(int over,
        int lines) const;

  int x_ [[maybe_unused]] = first(0);
  alignas(64) std::atomic<int> word_{0};
  std::vector<int> list_ = {1, 2};
};
"""


def test_methods_are_what_a_class_declares() -> None:
    counted = dict(classes(ROOM))
    assert counted["Room"] == ["create", "get", "poll", "poll", "start", "for_each", "split"]
    assert counted["Entry"] == ["empty"]
    assert set(counted) == {"Room", "Entry"}


def room(name: str, methods: int) -> str:
    return f"class {name} {{\n" + "".join(f"  void m{i}();\n" for i in range(methods)) + "};\n"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("runtime/room.h", room("Room", 25), ""),
        ("runtime/room.h", room("Room", 26), "room.h: Room has 26 methods, more than 25"),
        ("launch/room.h", room("Room", 26), "launch/room.h: Room has 26 methods"),
        ("a/b/room.cc", "namespace {\n" + room("Room", 26) + "}\n", "Room has 26 methods"),
        ("runtime/room_test.cc", room("Room", 26), ""),
        ("runtime/engine.cc", "\n" * 300, ""),
        ("runtime/engine.cc", "\n" * 301, "runtime/engine.cc: 301 lines, more than 300"),
        ("runtime/engine.h", "\n" * 301, "301 lines, more than 300"),
        ("launch/engine.h", "\n" * 301, ""),
    ],
)
def test_what_is_large_is_named(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    path = tmp_path / "cpp/src" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    warnings = check(tmp_path)
    assert len(warnings) == bool(complaint)
    assert complaint in "".join(warnings)


def test_a_large_class_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cpp/src/launch/room.h"
    path.parent.mkdir(parents=True)
    path.write_text(room("Room", 26))
    monkeypatch.setattr("sys.argv", ["check_rooms.py", str(tmp_path)])
    main()
    assert "rooms: warning: launch/room.h: Room has 26 methods" in capsys.readouterr().out
