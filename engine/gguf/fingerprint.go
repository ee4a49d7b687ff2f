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
		if err := addFile(ctx, h, p); err != nil {
			return "", fmt.Errorf("fingerprint of %s: %w", path, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// addFile reads the file rather than a mapping of it, so that a disk error is an error and not a fault.
func addFile(ctx context.Context, w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, until{ctx, f}, make([]byte, 1<<20))
	return errors.Join(err, f.Close())
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
