#include "app/server/aggregator_thread.h"

#include <array>

#include "base/own_thread.h"
#include "collective/aggregator.h"
#include "transport/tcp_stream.h"

namespace corro::app {

Result<std::unique_ptr<AggregatorThread>> AggregatorThread::start() {
  CORRO_ASSIGN(io::EventFd bell, io::EventFd::create());
  CORRO_ASSIGN(io::Epoll ready, io::Epoll::create());
  CORRO_TRY(ready.add(bell.fd(), EPOLLIN, 0));
  std::unique_ptr<AggregatorThread> made(new AggregatorThread(std::move(bell), std::move(ready)));
  made->thread_ = start_own_thread("corro-sums", [raw = made.get()] { raw->run(); });
  return made;
}

AggregatorThread::~AggregatorThread() {
  ends_.store(true, std::memory_order_release);
  bell_.ring();
  thread_.join();
}

void AggregatorThread::admit(int32_t rank, io::Fd connection) {
  admitted_.lock()->emplace_back(rank, std::move(connection));
  bell_.ring();
}

void AggregatorThread::run() {
  collective::Aggregator aggregator;
  while (!ends_.load(std::memory_order_acquire)) {
    Admitted admitted;
    admitted.swap(*admitted_.lock());
    for (auto& [rank, fd] : admitted) {
      // Where the kernel has no room for it, the rank sees it end and does without.
      const bool watched =
          ready_.add(fd.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, 0, io::Trigger::kEdge).ok();
      if (watched) aggregator.admit(rank, std::make_unique<transport::TcpStream>(std::move(fd)));
    }
    if (aggregator.poll() || !admitted.empty()) continue;
    std::array<epoll_event, 64> events{};
    (void)ready_.wait(events, Duration(-1));
    bell_.drain();
  }
}

}  // namespace corro::app
