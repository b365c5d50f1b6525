#include "secure/ssh_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <vector>

namespace corro::secure {
namespace {

using ::testing::StartsWith;

std::string decode_base64(const std::string& text) {
  std::vector<unsigned char> bytes(text.size());
  const int length =
      EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()),
                      static_cast<int>(text.size()));
  EXPECT_GT(length, 0);
  const size_t padding = text.size() - (text.find_last_not_of('=') + 1);
  return {reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(length) - padding};
}

std::string point_of(const std::string& pem) {
  BIO* memory = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  EVP_PKEY* pair = PEM_read_bio_PrivateKey(memory, nullptr, nullptr, nullptr);
  unsigned char* point = nullptr;
  const size_t length = pair == nullptr ? 0 : EVP_PKEY_get1_encoded_public_key(pair, &point);
  const std::string bytes(reinterpret_cast<const char*>(point), length);
  OPENSSL_free(point);
  EVP_PKEY_free(pair);
  BIO_free(memory);
  return bytes;
}

TEST(SshKeysTest, ThePublicLineIsOfThePrivateKey) {
  const auto values = make_ssh_keys().value();
  const std::string& pem = values.at("ssh-privatekey");
  const std::string& line = values.at("ssh-publickey");
  EXPECT_THAT(pem, StartsWith("-----BEGIN EC PRIVATE KEY-----\n"));
  const std::string begin = "ecdsa-sha2-nistp521 ";
  ASSERT_THAT(line, StartsWith(begin));
  ASSERT_EQ(line.back(), '\n');
  const std::string blob = decode_base64(line.substr(begin.size(), line.size() - begin.size() - 1));
  const std::string point = point_of(pem);
  ASSERT_EQ(point.size(), 133U);  // 0x04 and two numbers of 66 bytes: RFC 5656, 3.1.
  EXPECT_EQ(blob, std::string("\0\0\0\x13", 4) + "ecdsa-sha2-nistp521" +
                      std::string("\0\0\0\x08", 4) + "nistp521" + std::string("\0\0\0\x85", 4) +
                      point);
}

TEST(SshKeysTest, EachPairIsNew) {
  EXPECT_NE(make_ssh_keys().value().at("ssh-publickey"),
            make_ssh_keys().value().at("ssh-publickey"));
}

}  // namespace
}  // namespace corro::secure
