package gguf

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
)

// Fingerprint is the identity of a model: the SHA-256 of its file, of all parts one after the other if it is split, in
// lower-case hexadecimal. It reads every byte, and stops when ctx ends.
func Fingerprint(ctx context.Context, path string) (string, error) {
	f, err := Open(path)
	if err != nil {
		return "", err
	}
	parts := f.Parts()
	if err := f.Close(); err != nil {
		return "", err
	}
	h := sha256.New()
	for _, p := range parts {
		if _, err := AddFile(ctx, h, p); err != nil {
			return "", fmt.Errorf("fingerprint of %s: %w", path, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// AddFile adds the bytes of a file to a hash and returns how many they are; it stops when ctx ends. It reads the file rather than
// a mapping of it, so that a disk error is an error and not a fault.
func AddFile(ctx context.Context, hash io.Writer, path string) (size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	size, err = io.CopyBuffer(struct{ io.Writer }{hash}, until{ctx, f}, make([]byte, 1<<20))
	return size, errors.Join(err, f.Close())
}

// until reads as long as ctx goes on.
type until struct {
	ctx context.Context
	io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}
