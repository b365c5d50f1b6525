#include "table/service/page_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace corro::table {
namespace {

/// Counts, and fails at one page.
class Counter final : public PartSink {
 public:
  explicit Counter(int fails_at = -1) : fails_at_(fails_at) {}
  Status take_head(const PartHead&) override {
    ++heads;
    return {};
  }
  Status take_page(Bytes& page) override {
    EXPECT_EQ(page.at(0), static_cast<std::byte>(pages % 256));
    return pages++ == fails_at_ ? Status(Code::kDataLoss, "no rows") : Status();
  }
  int heads = 0;
  int pages = 0;

 private:
  const int fails_at_;
};

/// As PartReader does: the page's memory is used again.
Status put_pages(PageQueue& queue, int count) {
  CORRO_TRY(queue.take_head({}));
  Bytes page;
  for (int i = 0; i < count; ++i) {
    page.assign(100, static_cast<std::byte>(i % 256));
    CORRO_TRY(queue.take_page(page));
  }
  return {};
}

TEST(PageQueue, HandsAllOverInOrder) {
  PageQueue queue;
  std::thread reader([&] { queue.end(put_pages(queue, 1000)); });
  Counter counter;
  EXPECT_TRUE(queue.hand_all(counter).ok());
  reader.join();
  EXPECT_EQ(counter.heads, 1);
  EXPECT_EQ(counter.pages, 1000);
}

TEST(PageQueue, ATakerThatFailsEndsTheReader) {
  PageQueue queue;
  Status read;
  std::thread reader([&] { queue.end(read = put_pages(queue, 1000)); });
  Counter counter(3);
  EXPECT_EQ(queue.hand_all(counter).code(), Code::kDataLoss);
  reader.join();
  EXPECT_EQ(read.code(), Code::kCancelled);
  EXPECT_EQ(counter.pages, 4);
}

TEST(PageQueue, AReaderThatFailsIsHeardBehindItsPages) {
  PageQueue queue;
  ASSERT_TRUE(put_pages(queue, 2).ok());
  queue.end({Code::kDataLoss, "cut"});
  Counter counter;
  EXPECT_EQ(queue.hand_all(counter).message(), "cut");
  EXPECT_EQ(counter.pages, 2);
}

TEST(PageQueue, WhatIsGivenUpEndsBoth) {
  PageQueue queue;
  queue.give_up();
  Counter counter;
  EXPECT_EQ(queue.hand_all(counter).code(), Code::kCancelled);
  EXPECT_EQ(put_pages(queue, 1).code(), Code::kCancelled);
}

}  // namespace
}  // namespace corro::table
