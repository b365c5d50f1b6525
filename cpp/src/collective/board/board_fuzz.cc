// Two ranks of a board while the input writes into their sections: each reads what a hostile or
// crashed member of its host could leave there, before and after every step. And Segment::attach()
// with memory whose size and header are the input's.
//
// Operation 0 alone is used; what belongs to others is poisoned, so that a read past a line or a
// slot is seen though the memory is mapped. A line may say, and hurts only its owner by it, that
// its buffers are in that part of its own segment: that is forgotten. The seeds are honest
// operations, one for each path, with additions of 0 to the words that matter.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include <sanitizer/asan_interface.h>

#include "base/bytes.h"
#include "collective/board/board.h"
#include "collective/board/board_exchange.h"

namespace corro::collective {
namespace {

constexpr uint32_t kLane = 1;
constexpr size_t kArenaBytes = size_t{1} << 20U;
constexpr size_t kSectionsBytes = size_t{8} << 20U;  ///< For a section with its stages.
constexpr size_t kOutputStart = kArenaBytes / 2;     ///< Of the result in the arena.
/// In front of the arena, which lies across the end of the window, and of the sections, behind it.
constexpr size_t kFillBytes = Segment::kWindowBytes - (size_t{16} << 10U);
/// Counters, lines and the slot of operation 0.
constexpr size_t kPatched = offsetof(GroupSection, slots) + kSlotBytes;

void poison(const void* begin, const void* end) {
  ASAN_POISON_MEMORY_REGION(begin, static_cast<size_t>(static_cast<const std::byte*>(end) -
                                                       static_cast<const std::byte*>(begin)));
}

/// Two ranks: their segments, each as its owner and as the other has mapped it, and their boards.
/// Made once: that takes longer than all the rest.
struct Host {
  Host() {
    for (size_t r = 0; r < 2; ++r) {
      own[r] = Segment::create(kFillBytes + kArenaBytes + kSectionsBytes).value();
      (void)own[r]->allocate(kFillBytes).value();
      arenas[r] = own[r]->allocate(kArenaBytes).value();
      seen[r] = Segment::attach(io::Fd(::dup(own[r]->fd()))).value();
      stages[r] = std::make_unique<StagePool>(*own[r]);
    }
    for (size_t r = 0; r < 2; ++r) boards[r] = open_board(r);
    for (const auto& board : boards) CORRO_CHECK(board->missing_member().value() < 0);
    for (size_t r = 0; r < 2; ++r) {
      GroupSection& section = *boards[1 - r]->member(static_cast<int32_t>(r)).section;
      poison(&section.lines[1], section.slots[0]);
      poison(section.slots[1], &section + 1);
    }
  }
  std::unique_ptr<Board> open_board(size_t rank) {
    std::vector<Board::Member> members(2);
    for (size_t r = 0; r < 2; ++r) {
      members[r] = {.segment = r == rank ? own[r].get() : seen[r].get(),
                    .world_rank = static_cast<int32_t>(r),
                    .pid = getpid()};
    }
    const auto wake = [](int32_t) {};
    return Board::create({.epoch = 0, .key = kLane}, static_cast<int32_t>(rank), std::move(members),
                         wake, *stages[rank])
        .value();
  }
  /// Forgets what the last input left.
  void reset() {
    for (const auto& board : boards) {
      std::fill_n(reinterpret_cast<std::byte*>(&board->own()), kPatched, std::byte{0});
      board->staged_chunks = 0;
    }
  }
  std::array<std::unique_ptr<Segment>, 2> own, seen;  ///< By the rank whose memory it is.
  std::array<std::byte*, 2> arenas{};
  std::array<std::unique_ptr<StagePool>, 2> stages;
  std::array<std::unique_ptr<Board>, 2> boards;
};

/// What the input asks for; `uneven` is how much each rank gives to each.
struct Wanted {
  explicit Wanted(ByteReader& reader) {
    const auto byte = [&reader] { return reader.read<uint8_t>().value_or(0); };
    kind = static_cast<OpKind>(byte() % static_cast<uint8_t>(OpKind::kSend));
    dtype = static_cast<DType>(byte() % kDTypeCount);
    reduce_op = static_cast<ReduceOp>(byte() % kReduceOpCount);
    modes = byte();
    for (auto& row : uneven) {
      for (uint64_t& count : row) {  // mostly small
        count = byte();
        if (count % 4 == 3) count = count << 6U | byte();
      }
    }
  }
  [[nodiscard]] bool has(unsigned bit) const { return (modes >> bit & 1U) != 0; }

  OpKind kind;
  DType dtype;
  ReduceOp reduce_op;
  uint8_t modes;  ///< Bits: root, uneven, scaled; arena and in place of rank 0; of rank 1.
  uint64_t uneven[2][2] = {};
};

OpRequest request_of(const Wanted& wanted, size_t rank) {
  OpRequest request{.kind = wanted.kind,
                    .dtype = wanted.dtype,
                    .reduce_op = wanted.reduce_op,
                    .root = wanted.has(0) ? 1 : 0,
                    .count = wanted.uneven[0][0],
                    .prescale = wanted.has(2) ? 2.0 : 1.0};
  if (!validate_sizes(request, static_cast<int32_t>(rank), 2).ok())
    request.reduce_op = ReduceOp::kSum;
  if (!wanted.has(1)) return request;
  if (wanted.kind == OpKind::kAlltoall) {
    request.send_counts = {wanted.uneven[rank][0], wanted.uneven[rank][1]};
    request.counts = {wanted.uneven[0][rank], wanted.uneven[1][rank]};
  } else {
    request.counts = {wanted.uneven[0][0], wanted.uneven[0][1]};
  }
  return request;
}

/// One rank: its buffers are as large as they have to be, or in its arena.
struct Rank {
  Rank(Host& host, const Wanted& wanted, size_t rank)
      : request(request_of(wanted, rank)), board(*host.boards[rank]) {
    const Shape shape(request, static_cast<int32_t>(rank), 2);
    const bool arena = wanted.has(3 + 2 * static_cast<unsigned>(rank));
    input.resize(arena ? 0 : shape.contribution() * size_of(request.dtype));
    output.resize(arena ? 0 : shape.output_count() * size_of(request.dtype));
    request.input = arena ? host.arenas[rank] : input.data();
    request.output = arena ? host.arenas[rank] + kOutputStart : output.data();
    const bool in_place = wanted.has(4 + 2 * static_cast<unsigned>(rank)) && shape.takes();
    if (in_place && is_sliced(request.kind)) request.input = request.output;
    operation = make_board_operation(board, 0, request);
  }
  void poll(bool oldest) {
    if (!over) over = operation->poll(oldest) == Progress::kDone;
    (void)board.find_failure(0);
    (void)board.line_free(kLines);
    (void)board.slot_free(kSlots);
  }

  std::vector<std::byte> input, output;
  OpRequest request;
  Board& board;
  std::unique_ptr<Operation> operation;
  bool over = false;
};

/// A place in a section: a counter, a word of the line or of the table, or any byte of the slot.
size_t place_of(ByteReader& reader) {
  constexpr std::array<size_t, 6> kCounters = {
      offsetof(GroupSection, completed), offsetof(GroupSection, failed),
      offsetof(GroupSection, put),       offsetof(GroupSection, folded),
      offsetof(GroupSection, taken),     offsetof(GroupSection, finished)};
  constexpr size_t kLineWords = sizeof(Line) / 8;
  constexpr size_t kTableWords = 4;  // two for each rank
  size_t which = reader.read<uint8_t>().value_or(0) % 32;
  if (which < kCounters.size()) return kCounters[which];
  which -= kCounters.size();
  if (which < kLineWords) return offsetof(GroupSection, lines) + 8 * which;
  which -= kLineWords;
  if (which < kTableWords) return offsetof(GroupSection, slots) + 8 * which;
  return offsetof(GroupSection, slots) + 8UL * (reader.read<uint16_t>().value_or(0) % 2000U);
}

/// Adds the input's number, shifted, to one word or two that follow each other.
void add(ByteReader& reader, std::byte* at) {
  const uint8_t how = reader.read<uint8_t>().value_or(0);
  const auto by = static_cast<uint64_t>(reader.read<int16_t>().value_or(0)) << (how & 63U);
  for (unsigned i = 0; i <= how >> 7U; ++i, at += sizeof by) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    word += by;
    std::memcpy(at, &word, sizeof word);
  }
}

void patch(ByteReader& reader, GroupSection& section, bool adds) {
  std::byte* at = reinterpret_cast<std::byte*>(&section) + place_of(reader);
  if (adds) return add(reader, at);
  const size_t most = reader.read<uint8_t>().value_or(0);
  const auto data = reader.read_bytes(std::min(most, reader.remaining()));
  std::copy(data->begin(), data->end(), at);
}

/// Takes back what the line offers of the poisoned memory: no buffer is larger than half an arena.
void forget_poisoned(const Board::Member& member) {
  Line& line = member.section->lines[0];
  const uint64_t begin = member.view.place, end = begin + sizeof(GroupSection);
  for (uint64_t* place : {&line.input_place, &line.output_place}) {
    if (*place > begin - kArenaBytes / 2 && *place < end) *place = 0;
  }
}

/// The input as commands: who (bit 7) is polled, as the oldest (bit 6) or not, or patched.
void run_board(Host& host, ByteReader& reader) {
  host.reset();
  const Wanted wanted(reader);
  std::array<Rank, 2> ranks = {Rank(host, wanted, 0), Rank(host, wanted, 1)};
  while (const auto command = reader.read<uint8_t>()) {
    const size_t who = *command >> 7U;
    if (*command % 4 < 2) {
      ranks[who].poll((*command >> 6U & 1U) != 0);
    } else {
      patch(reader, ranks[who].board.own(), *command % 4 == 3);
      forget_poisoned(ranks[who].board.member(static_cast<int32_t>(who)));
    }
  }
  for (const Rank& rank : ranks) (void)rank.board.last_operation_of(rank.board.rank());
}

/// A sealed memfd of any size with any header, and every question that is asked of a peer's
/// segment.
void run_attach(const Host& host, ByteReader& reader) {
  const size_t right = host.own[0]->bytes();
  const size_t size = right + 0x8000 - reader.read<uint16_t>().value_or(0x8000);
  const io::Fd fd = io::create_memfd("corro-fuzz", size).value();
  const std::array<uint64_t, 2> start = {kSegmentMagic, size};
  CORRO_CHECK(pwrite(fd.get(), start.data(), sizeof start, 0) == sizeof start);
  const auto offset = reader.read<uint64_t>().value_or(size - 1);
  const auto bytes = reader.read<uint64_t>().value_or(1);
  const auto at = static_cast<off_t>(reader.read<uint8_t>().value_or(0));
  const auto header = reader.read_bytes(std::min(reader.remaining(), sizeof(SegmentHeader)));
  CORRO_CHECK(pwrite(fd.get(), header->data(), header->size(), at) ==
              static_cast<ssize_t>(header->size()));
  const auto segment = Segment::attach(io::Fd(::dup(fd.get())));
  if (!segment.ok()) return;
  if (const auto view = (*segment)->find_section({.epoch = 0, .key = kLane}).value()) {
    (void)view->section->completed.load();
    (void)(*segment)->stages_of(*view->section).value();
  }
  if (const auto* memory = (*segment)->at(offset, bytes).value(); memory != nullptr && bytes > 0) {
    CORRO_CHECK(memory[0] == std::byte{0} && memory[bytes - 1] == std::byte{0});
  }
}

}  // namespace
}  // namespace corro::collective

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static corro::collective::Host host;
  corro::ByteReader reader(std::as_bytes(std::span(data, size)));
  const auto which = reader.read<uint8_t>();
  if (!which) return 0;
  if (*which % 8 == 0) {
    run_attach(host, reader);
  } else {
    run_board(host, reader);
  }
  return 0;
}
