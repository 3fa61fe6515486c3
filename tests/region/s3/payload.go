package s3

import (
	"bufio"
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// checksums are the algorithms that objects can carry, by header.
var checksums = map[string]func() hash.Hash{
	"X-Amz-Checksum-Crc32":     func() hash.Hash { return crc32.NewIEEE() },
	"X-Amz-Checksum-Crc32c":    func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) },
	"X-Amz-Checksum-Crc64nvme": func() hash.Hash { return crc64.New(crc64.MakeTable(nvmePolynomial)) },
	"X-Amz-Checksum-Sha1":      sha1.New,
	"X-Amz-Checksum-Sha256":    sha256.New,
}

// nvmePolynomial is CRC-64/NVME's, bit-reversed as hash/crc64 takes it.
const nvmePolynomial = 0x9a6c9329ac4bc9b5

// payload returns a request's body as the caller meant it, taken out of the
// SDK's chunked encoding and compared with every checksum that came with it in
// headers or trailer, and the checksum to keep with an object (name and value,
// empty without one).
func payload(header http.Header, body []byte) (content []byte, checksum http.Header, err error) {
	sums := http.Header{}
	for name := range checksums {
		if value := header.Get(name); value != "" {
			sums.Set(name, value)
		}
	}
	content = body
	declared := header.Get("X-Amz-Content-Sha256")
	if strings.HasPrefix(declared, "STREAMING-") {
		trailer, chunked, err := dechunk(body)
		if err != nil {
			return nil, nil, api.Errorf(http.StatusBadRequest, "IncompleteBody", "%v", err)
		}
		content = chunked
		for name := range checksums {
			if value := trailer.Get(name); value != "" {
				sums.Set(name, value)
			}
		}
		if length := header.Get("X-Amz-Decoded-Content-Length"); length != strconv.Itoa(len(content)) {
			return nil, nil, api.Errorf(http.StatusBadRequest, "IncompleteBody", "got %d bytes, %s were declared", len(content), length)
		}
	} else if len(declared) == hex.EncodedLen(sha256.Size) {
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != declared {
			return nil, nil, api.Errorf(http.StatusBadRequest, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.")
		}
	}
	if value := header.Get("Content-Md5"); value != "" {
		if sum := md5.Sum(content); base64.StdEncoding.EncodeToString(sum[:]) != value {
			return nil, nil, api.Errorf(http.StatusBadRequest, "BadDigest", "The Content-MD5 you specified did not match what we received.")
		}
	}
	for name := range sums {
		sum := checksums[name]()
		sum.Write(content)
		if got := base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != sums.Get(name) {
			return nil, nil, api.Errorf(http.StatusBadRequest, "BadDigest", "The %s you specified did not match the calculated checksum.", strings.ToLower(name))
		}
	}
	return content, sums, nil
}

// dechunk reads the aws-chunked encoding: chunks of "SIZE[;chunk-signature=…]",
// the last of size zero, then trailing headers.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
func dechunk(body []byte) (textproto.MIMEHeader, []byte, error) {
	reader := textproto.NewReader(bufio.NewReader(bytes.NewReader(body)))
	var content []byte
	for {
		line, err := reader.ReadLine()
		if err != nil {
			return nil, nil, fmt.Errorf("read chunk size: %w", err)
		}
		digits, _, _ := strings.Cut(line, ";")
		size, err := strconv.ParseUint(digits, 16, 32)
		if err != nil {
			return nil, nil, fmt.Errorf("read chunk size: %w", err)
		}
		if size == 0 {
			break
		}
		start := len(content)
		content = append(content, make([]byte, size)...)
		if _, err := io.ReadFull(reader.R, content[start:]); err != nil {
			return nil, nil, fmt.Errorf("read chunk of %d bytes: %w", size, err)
		}
		if end, err := reader.ReadLine(); err != nil || end != "" {
			return nil, nil, fmt.Errorf("chunk of %d bytes does not end where it should", size)
		}
	}
	trailer, err := reader.ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("read trailer: %w", err)
	}
	return trailer, content, nil
}
