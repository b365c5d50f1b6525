#include "secure/ssh_keys.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <memory>
#include <string_view>
#include <vector>

namespace corro::secure {
namespace {

constexpr std::string_view kAlgorithm = "ecdsa-sha2-nistp521";
constexpr std::string_view kCurve = "nistp521";

struct FreeKeyPart {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(unsigned char* bytes) const { OPENSSL_free(bytes); }
};
using KeyPair = std::unique_ptr<EVP_PKEY, FreeKeyPart>;

/// ssh's string: its length, the largest byte first, and its bytes.
void add_string(std::string& blob, std::string_view text) {
  for (const unsigned shift : {24U, 16U, 8U, 0U})
    blob += static_cast<char>((text.size() >> shift) & 0xffU);
  blob += text;
}

std::string base64_of(const std::string& bytes) {
  std::vector<unsigned char> text(4 * (bytes.size() / 3 + 1) + 1);
  const int length =
      EVP_EncodeBlock(text.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  return {reinterpret_cast<const char*>(text.data()), static_cast<size_t>(length)};
}

std::string private_pem_of(EVP_PKEY* pair) {
  const std::unique_ptr<BIO, FreeKeyPart> memory(BIO_new(BIO_s_mem()));
  if (!memory || PEM_write_bio_PrivateKey_traditional(memory.get(), pair, nullptr, nullptr, 0,
                                                      nullptr, nullptr) != 1)
    return "";
  char* text = nullptr;
  const long length = BIO_get_mem_data(memory.get(), &text);
  return length > 0 ? std::string(text, static_cast<size_t>(length)) : "";
}

std::string public_line_of(EVP_PKEY* pair) {
  unsigned char* point = nullptr;
  const size_t length = EVP_PKEY_get1_encoded_public_key(pair, &point);
  const std::unique_ptr<unsigned char, FreeKeyPart> owner(point);
  if (length == 0) return "";
  std::string blob;
  add_string(blob, kAlgorithm);
  add_string(blob, kCurve);
  add_string(blob, {reinterpret_cast<const char*>(point), length});
  return std::string(kAlgorithm) + " " + base64_of(blob) + "\n";
}

}  // namespace

Result<std::map<std::string, std::string>> make_ssh_keys() {
  const KeyPair pair(EVP_EC_gen("P-521"));
  if (!pair) return Status(Code::kInternal, "OpenSSL makes no key on P-521");
  std::map<std::string, std::string> values{{"ssh-privatekey", private_pem_of(pair.get())},
                                            {"ssh-publickey", public_line_of(pair.get())}};
  for (const auto& [name, value] : values)
    if (value.empty()) return Status(Code::kInternal, "OpenSSL does not write " + name);
  return values;
}

}  // namespace corro::secure
