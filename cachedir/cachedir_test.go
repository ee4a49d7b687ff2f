package cachedir

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

func TestTheFolderIsThatOfTheVariableOrTheUsersCache(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/users")
	t.Setenv("HOME", "/users")
	t.Setenv("ATTNBUDGET_CACHE", "/elsewhere")
	if dir, err := Path(); err != nil || dir != "/elsewhere" {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("ATTNBUDGET_CACHE", "")
	if dir, err := Path(); err != nil || filepath.Base(dir) != "attnbudget" || !filepath.IsAbs(dir) {
		t.Errorf("%s, %v", dir, err)
	}
}

func TestALockIsWaitedForUntilItIsGivenBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Lock(short, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a held lock was given, or %v", err)
	}
	time.AfterFunc(50*time.Millisecond, unlock)
	again, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
