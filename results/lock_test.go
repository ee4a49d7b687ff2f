package results

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestMain lets this test binary be the other process that holds a lock.
func TestMain(m *testing.M) {
	if path := os.Getenv("ATTNBUDGET_TEST_HOLD_LOCK"); path != "" {
		holdLock(path)
		return
	}
	os.Exit(m.Run())
}

func holdLock(path string) {
	d, err := Open(path)
	if err == nil {
		_, err = d.Lock("the other run")
	}
	if err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Stdout.WriteString("locked\n")
	time.Sleep(time.Minute)
}

func TestALockedDirectoryNamesItsHolder(t *testing.T) {
	d := newDir(t)
	lock, err := d.Lock("first run")
	if err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if _, err := d.Lock("second run"); !errors.As(err, &locked) {
		t.Fatalf("got %v, expected a LockedError", err)
	}
	if locked.Holder.PID != os.Getpid() || locked.Holder.Command != "first run" || locked.Holder.Host == "" || time.Since(locked.Holder.Since) > time.Hour {
		t.Errorf("holder %+v", locked.Holder)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(d.file(lockFile)); err != nil || len(text) > 0 {
		t.Errorf("a lock that nobody holds names %q, %v", text, err)
	}
	lock, err = d.Lock("second run")
	if err != nil {
		t.Fatalf("after unlocking: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestTheLockOfAKilledProcessVanishes(t *testing.T) {
	d := newDir(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ATTNBUDGET_TEST_HOLD_LOCK="+d.Path())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "locked\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	var locked *LockedError
	if _, err := d.Lock("this run"); !errors.As(err, &locked) || locked.Holder.PID != cmd.Process.Pid || !strings.Contains(err.Error(), "the other run") {
		t.Errorf("got %v, expected it to name process %d", err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	lock, err := d.Lock("this run")
	if err != nil {
		t.Fatalf("after the kill: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}
