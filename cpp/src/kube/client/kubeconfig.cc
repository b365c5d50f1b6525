#include "kube/client/kubeconfig.h"

#include <fmt/format.h>
#include <sodium.h>

#include <charconv>

#include "plan/json.h"
#include "plan/yaml.h"

namespace corro::kube {
namespace {

using plan::Json;
using plan::Place;
using plan::Reading;

/// Reads objects of a file whose other fields are somebody else's.
class FileReader {
 public:
  FileReader(std::string_view text, std::string_view name) : name_(name), reading_(name, text) {}

  [[nodiscard]] bool ok() const { return reading_.ok() && refusal_.ok(); }
  [[nodiscard]] Status status() const { return refusal_.ok() ? reading_.status() : refusal_; }
  void fail(const Place& place, std::string_view what) { reading_.fail(place, what); }
  /// Keeps the first thing that corro does not do on purpose.
  void refuse(const Place& place, std::string_view what) {
    if (!ok()) return;
    refusal_ = Status(Code::kFailedPrecondition,
                      fmt::format("{}: {}: {}", name_, place.to_string(), what));
  }

  /// Null if the field is missing or null.
  static const Json* find(const Json& object, std::string_view field) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(field);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  std::string text(const Json& object, const Place& around, std::string_view field) {
    const Json* value = find(object, field);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    fail({&around, field, {}}, "must be a text");
    return {};
  }
  bool boolean(const Json& object, const Place& around, std::string_view field) {
    const Json* value = find(object, field);
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->get<bool>();
    fail({&around, field, {}}, "must be true or false");
    return false;
  }
  /// PEM in base64, as the fields that end in -data.
  std::string data(const Json& object, const Place& around, std::string_view field) {
    std::optional<std::string> decoded = decode_base64(text(object, around, field));
    if (!decoded) fail({&around, field, {}}, "is no base64");
    return decoded.value_or("");
  }
  /// A path, from the file's folder on.
  std::string path(const Json& object, const Place& around, std::string_view field) {
    std::string path = text(object, around, field);
    if (path.empty() || path.starts_with('/')) return path;
    return folder() + path;
  }
  [[nodiscard]] std::string folder() const {
    const size_t slash = name_.rfind('/');
    return slash == std::string::npos ? "" : name_.substr(0, slash + 1);
  }

  /// Calls visit(item, place) for each item of a list until one fails; a missing list is empty.
  template <typename Visit>
  void items(const Json& object, const Place& around, std::string_view field, Visit&& visit) {
    const Json* list = find(object, field);
    const Place at{around.field.empty() && !around.item ? nullptr : &around, field, {}};
    if (list != nullptr && !list->is_array()) return fail(at, "must be a list");
    for (size_t i = 0; list != nullptr && i < list->size() && ok(); ++i) {
      visit((*list)[i], Place{&at, {}, i});
    }
  }
  /// Calls visit(inner, place) for the item called `name` of a list such as `clusters`, whose items
  /// hold it as `field`.
  template <typename Visit>
  void named(const Json& top, std::string_view list, std::string_view field,
             const std::string& name, Visit&& visit) {
    bool is_found = false;
    items(top, {}, list, [&](const Json& item, const Place& place) {
      if (is_found || text(item, place, "name") != name) return;
      is_found = true;
      const Place inside{&place, field, {}};
      const Json* inner = find(item, field);
      if (inner != nullptr && !inner->is_object()) return fail(inside, "must be an object");
      visit(inner == nullptr ? Json::object() : *inner, inside);
    });
    const bool is_shown = plan::is_name(name);
    if (!is_found) {
      fail({nullptr, list, {}}, "has nothing called " + (is_shown ? '"' + name + '"' : "so"));
    }
  }

 private:
  std::string name_;
  Reading reading_;
  Status refusal_;
};

void read_cluster(FileReader& file, const Json& object, const Place& at, KubeCluster& cluster) {
  const std::string server = file.text(object, at, "server");
  const Place server_at{&at, "server", {}};
  if (file.boolean(object, at, "insecure-skip-tls-verify")) {
    file.refuse({&at, "insecure-skip-tls-verify", {}},
                "corro always verifies the server's certificate: give certificate-authority-data");
  }
  if (!file.text(object, at, "proxy-url").empty()) {
    file.refuse({&at, "proxy-url", {}}, "corro speaks to the server without a proxy");
  }
  if (server.starts_with("http://")) {
    file.refuse(server_at, "corro speaks TLS alone: it must begin with https://");
  }
  if (!file.ok()) return;
  if (const Status status = read_server_url(server, cluster); !status.ok()) {
    file.fail(server_at, status.message());
  }
  cluster.ca_pem = file.data(object, at, "certificate-authority-data");
  if (cluster.ca_pem.empty()) cluster.ca_file = file.path(object, at, "certificate-authority");
  const std::string name = file.text(object, at, "tls-server-name");
  if (!name.empty()) cluster.server_name = name;
}

bool is_argument(const std::string& text) { return text.find('\0') == std::string::npos; }

ExecPlugin read_plugin(FileReader& file, const Json& object, const Place& at) {
  ExecPlugin plugin;
  plugin.api_version = file.text(object, at, "apiVersion");
  plugin.command = file.text(object, at, "command");
  plugin.install_hint = file.text(object, at, "installHint");
  plugin.wants_cluster = file.boolean(object, at, "provideClusterInfo");
  const bool is_known = plugin.api_version == "client.authentication.k8s.io/v1" ||
                        plugin.api_version == "client.authentication.k8s.io/v1beta1";
  if (!is_known) file.fail({&at, "apiVersion", {}}, "must be client.authentication.k8s.io/v1");
  if (plugin.command.empty() || !is_argument(plugin.command)) {
    file.fail({&at, "command", {}}, "must name a program");
  }
  const bool is_relative =
      plugin.command.find('/') != std::string::npos && plugin.command[0] != '/';
  if (is_relative) plugin.command = file.folder() + plugin.command;
  if (file.text(object, at, "interactiveMode") == "Always") {
    file.refuse({&at, "interactiveMode", {}}, "corro has no terminal to give to the program");
  }
  file.items(object, at, "args", [&](const Json& item, const Place& place) {
    const std::string argument = item.is_string() ? item.get<std::string>() : "";
    if (!item.is_string() || !is_argument(argument)) file.fail(place, "must be a text");
    plugin.arguments.push_back(argument);
  });
  file.items(object, at, "env", [&](const Json& item, const Place& place) {
    const std::string name = file.text(item, place, "name");
    const std::string value = file.text(item, place, "value");
    const bool is_variable = !name.empty() && name.find('=') == std::string::npos;
    if (!is_variable || !is_argument(name + value)) {
      file.fail(place, "must have a variable's name and value");
    }
    plugin.variables[name] = value;
  });
  return plugin;
}

void read_user(FileReader& file, const Json& object, const Place& at, KubeUser& user) {
  for (const std::string_view field :
       {"username", "password", "auth-provider", "as", "as-groups"}) {
    if (FileReader::find(object, field) == nullptr) continue;
    file.refuse({&at, field, {}}, "corro knows certificates, tokens and exec plug-ins alone");
  }
  user.token = file.text(object, at, "token");
  user.token_file = file.path(object, at, "tokenFile");
  user.certificate_pem = file.data(object, at, "client-certificate-data");
  if (user.certificate_pem.empty()) {
    user.certificate_file = file.path(object, at, "client-certificate");
  }
  user.key_pem = file.data(object, at, "client-key-data");
  if (user.key_pem.empty()) user.key_file = file.path(object, at, "client-key");
  const bool has_certificate = !user.certificate_pem.empty() || !user.certificate_file.empty();
  const bool has_key = !user.key_pem.empty() || !user.key_file.empty();
  if (has_certificate != has_key) {
    file.fail({&at, has_key ? "client-certificate" : "client-key", {}}, "is missing");
  }
  if (user.token.find_first_of("\r\n") != std::string::npos) {
    file.fail({&at, "token", {}}, "must be one line");
  }
  const Json* exec = FileReader::find(object, "exec");
  if (exec != nullptr) user.exec = read_plugin(file, *exec, {&at, "exec", {}});
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  std::string decoded(text.size(), '\0');
  size_t bytes = 0;
  const int failed = sodium_base642bin(reinterpret_cast<unsigned char*>(decoded.data()),
                                       decoded.size(), text.data(), text.size(), "\r\n", &bytes,
                                       nullptr, sodium_base64_VARIANT_ORIGINAL);
  if (failed != 0) return {};
  decoded.resize(bytes);
  return decoded;
}

Status read_server_url(std::string_view url, KubeCluster& cluster) {
  const auto refuse = [](std::string_view what) {
    return Status(Code::kInvalidArgument, fmt::format("{}: https://HOST[:PORT][/PATH]", what));
  };
  constexpr std::string_view kScheme = "https://";
  const bool is_printable = url.find_first_not_of(
                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-._~:/[]%") == std::string_view::npos;
  if (!url.starts_with(kScheme) || !is_printable) return refuse("must be an address");
  cluster.url = std::string(url);
  url.remove_prefix(kScheme.size());
  const size_t slash = std::min(url.find('/'), url.size());
  std::string_view path = url.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  cluster.base_path = std::string(path);
  std::string_view host = url.substr(0, slash);
  std::string_view port;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return refuse("has no end of its address");
    port = host.substr(end + 1);
    host = host.substr(1, end - 1);
  } else if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
    port = host.substr(colon);
    host = host.substr(0, colon);
  }
  if (host.empty() || host.size() > 253) return refuse("has no host");
  cluster.port = 443;
  if (!port.empty()) {
    const char* end = port.data() + port.size();
    const auto read = std::from_chars(port.data() + 1, end, cluster.port);
    const bool is_port = port.front() == ':' && read.ec == std::errc() && read.ptr == end;
    if (!is_port || cluster.port == 0) return refuse("has a bad port");
  }
  cluster.host = std::string(host);
  cluster.server_name = cluster.host;
  return {};
}

Result<KubeAccess> read_kubeconfig(std::string_view text, std::string_view name,
                                   std::string_view context) {
  if (text.size() > kMostKubeconfigBytes) {
    return Status(Code::kInvalidArgument, fmt::format("{}: has {} bytes; at most {} are read", name,
                                                      text.size(), kMostKubeconfigBytes));
  }
  CORRO_ASSIGN(const Json top, plan::parse_yaml(text, name));
  FileReader file(text, name);
  if (!top.is_object()) file.fail({}, "must be an object");
  std::string wanted(context);
  if (wanted.empty()) wanted = file.text(top, {}, "current-context");
  if (wanted.empty()) file.fail({nullptr, "current-context", {}}, "is missing");
  CORRO_TRY(file.status());
  KubeAccess access;
  std::string cluster;
  std::string user;
  file.named(top, "contexts", "context", wanted, [&](const Json& object, const Place& at) {
    cluster = file.text(object, at, "cluster");
    user = file.text(object, at, "user");
    const std::string space = file.text(object, at, "namespace");
    if (!space.empty()) access.space = space;
  });
  CORRO_TRY(file.status());
  file.named(top, "clusters", "cluster", cluster, [&](const Json& object, const Place& at) {
    read_cluster(file, object, at, access.cluster);
  });
  CORRO_TRY(file.status());
  file.named(top, "users", "user", user, [&](const Json& object, const Place& at) {
    read_user(file, object, at, access.user);
  });
  CORRO_TRY(file.status());
  return access;
}

}  // namespace corro::kube
