package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// files are the names in a folder.
func files(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func holds(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v; expected %q", filepath.Base(path), got, err, want)
	}
}

func TestAWrittenFileReplacesTheOldOneAndLeavesNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	for _, text := range []string{"a long first version", "second"} {
		if err := WriteBytes(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		holds(t, path, text)
	}
	if left := files(t, filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left %v", left)
	}
}

func TestTheOldFileStaysUntilTheNewOneIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	if err := WriteBytes(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "old")
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "new")
	if err := f.Abort(); err != nil {
		t.Errorf("Abort after Commit: %v", err)
	}
	holds(t, path, "new")
	if err := f.Commit(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a second Commit: %v", err)
	}
}

func TestAnAbortedOrFailedWriteLeavesTheOldFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	if err := WriteBytes(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("no more")
	if err := Write(path, func(f *os.File) error { f.WriteString("half"); return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Abort(); err != nil {
			t.Error(err)
		}
	}
	if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("an aborted file is still open: %v", err)
	}
	holds(t, path, "old")
	if left := files(t, filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left %v", left)
	}
}

func TestAFileThatCannotGetItsNameIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "taken")
	if err := os.MkdirAll(filepath.Join(path, "by a folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteBytes(path, nil); err == nil {
		t.Error("a folder was replaced")
	}
	if left := files(t, filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left %v", left)
	}
	if err := WriteBytes(filepath.Join(path, "no", "such", "folder"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestLeftoversAreRemovedAndNothingElse(t *testing.T) {
	folder := t.TempDir()
	kept := []string{"a", "b.tmp", ".hidden.tmp", ".a.0123.tmp", ".0123456789abcdef.tmp"}
	for _, name := range kept {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b", "b"} { // writers that never come to an end
		f, err := Create(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if err := RemoveLeftoversOf(filepath.Join(folder, "b")); err != nil {
		t.Fatal(err)
	}
	if left := files(t, folder); len(left) != len(kept)+1 {
		t.Errorf("of b removed: left %v", left)
	}
	if err := RemoveLeftovers(folder); err != nil {
		t.Fatal(err)
	}
	slices.Sort(kept)
	if left := files(t, folder); !slices.Equal(left, kept) {
		t.Errorf("left %v, expected %v", left, kept)
	}
	if err := RemoveLeftovers(filepath.Join(folder, "absent")); err != nil {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestAFolderIsMadeWithThoseAboveIt(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, path := range []string{filepath.Join("a", "b", "c"), filepath.Join("a", "b", "c"), "d", "."} {
		if err := MakeFolder(path); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if err := os.WriteFile("file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"file", filepath.Join("file", "x")} {
		if err := MakeFolder(path); err == nil || !strings.Contains(err.Error(), "not a directory") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestWhatIsNoFileIsNotReplaced(t *testing.T) {
	folder := t.TempDir()
	device := filepath.Join(folder, "null")
	if err := os.Symlink(os.DevNull, device); err != nil { // renaming over the device itself would spoil the machine
		t.Skip(err)
	}
	sub := filepath.Join(folder, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{device: "it is a device or pipe", sub: "it is a directory", folder + "/": "it is a directory"} {
		err := WriteBytes(path, []byte("x"))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	if info, err := os.Lstat(device); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("%v, %v", info, err)
	}
}
