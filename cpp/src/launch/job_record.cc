#include "launch/job_record.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "wire/digest.h"

namespace corro::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

Result<agent::MemberUuid> uuid_of(const std::string& hex) {
  agent::MemberUuid uuid{};
  if (hex.size() != 2 * uuid.size())
    return Status(Code::kDataLoss, fmt::format("'{}' names no member", hex));
  for (size_t i = 0; i < uuid.size(); ++i) {
    uint8_t byte = 0;
    const char* digits = hex.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
    if (error != std::errc() || end != digits + 2)
      return Status(Code::kDataLoss, fmt::format("'{}' names no member", hex));
    uuid[i] = std::byte{byte};
  }
  return uuid;
}

Json json_of(const JobRecord::Host& host) {
  return {{"name", host.name},
          {"slots", host.slots},
          {"address", host.address},
          {"id", host.id},
          {"gone", host.gone}};
}

Json json_of(const JobRecord::Member& member) {
  return {{"uuid", wire::to_hex(member.uuid)},
          {"incarnation", member.incarnation},
          {"place", member.place},
          {"host", member.host},
          {"slot", member.slot}};
}

Result<JobRecord::Member> member_of(const Json& json) {
  JobRecord::Member member{.incarnation = json.at("incarnation").get<uint32_t>(),
                           .place = json.at("place").get<size_t>(),
                           .host = json.at("host").get<size_t>(),
                           .slot = json.at("slot").get<int>()};
  CORRO_ASSIGN(member.uuid, uuid_of(json.at("uuid").get<std::string>()));
  return member;
}

Status check(const JobRecord& record) {
  constexpr size_t kMostPlaces = size_t{1} << 16U;
  std::set<size_t> places;
  std::set<std::pair<size_t, int>> slots;
  for (const JobRecord::Member& member : record.members) {
    const bool fits = member.host < record.hosts.size() && member.slot >= 0 &&
                      member.slot < record.hosts[member.host].slots && member.place < kMostPlaces;
    if (!fits || !places.insert(member.place).second ||
        !slots.insert({member.host, member.slot}).second)
      return {Code::kDataLoss,
              fmt::format("member {} has no place of its own", wire::to_hex(member.uuid))};
  }
  const bool is_named = !record.job.empty() && (record.members.empty() || record.ranks > 0);
  return is_named ? Status() : Status(Code::kDataLoss, "it is of no job");
}

}  // namespace

std::string format_record(const JobRecord& record) {
  Json json = {{"version", kVersion},   {"job", record.job},     {"ranks", record.ranks},
               {"epoch", record.epoch}, {"steps", record.steps}, {"resets", record.resets},
               {"last", record.last},   {"over", record.over}};
  json["status"] = record.ending ? Json(record.ending->status) : Json();
  if (record.ending) {
    json["by_hosts"] = record.ending->by_hosts;
    json["why"] = record.ending->why;
  }
  json["hosts"] = Json::array();
  for (const JobRecord::Host& host : record.hosts) json["hosts"].push_back(json_of(host));
  json["members"] = Json::array();
  for (const JobRecord::Member& member : record.members) json["members"].push_back(json_of(member));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<JobRecord> parse_record(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (const int version = json.at("version").get<int>(); version != kVersion)
      return Status(Code::kDataLoss, fmt::format("its version is {}, not {}", version, kVersion));
    JobRecord record{.job = json.at("job").get<std::string>(),
                     .ranks = json.at("ranks").get<int>(),
                     .epoch = json.at("epoch").get<uint32_t>(),
                     .steps = json.at("steps").get<uint64_t>(),
                     .resets = json.at("resets").get<int>(),
                     .last = json.at("last").get<bool>(),
                     .hosts = {},
                     .members = {},
                     .over = json.at("over").get<bool>()};
    // Those of 0.1.0 and before say no more than the status.
    if (!json.at("status").is_null())
      record.ending = Ending{.status = json.at("status").get<int>(),
                             .by_hosts = json.value("by_hosts", false),
                             .why = json.value("why", "")};
    for (const Json& host : json.at("hosts")) {
      record.hosts.push_back({.name = host.at("name").get<std::string>(),
                              .slots = host.at("slots").get<int>(),
                              .address = host.at("address").get<std::string>(),
                              .id = host.at("id").get<std::string>(),
                              .gone = host.at("gone").get<bool>()});
    }
    for (const Json& one : json.at("members")) {
      CORRO_ASSIGN(record.members.emplace_back(), member_of(one));
    }
    CORRO_TRY(check(record));
    return record;
  } catch (const Json::exception& error) {
    return Status(Code::kDataLoss, error.what());
  }
}

}  // namespace corro::launch
