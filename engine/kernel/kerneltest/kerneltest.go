// Package kerneltest lets the tests of other packages choose kernels. Programs choose them by kernel.Use.
package kerneltest

import (
	"testing"

	"attnbudget/engine/kernel"
)

// Use makes the test compute with the named kernels. The choice is the process's: such tests must not run in parallel.
func Use(t *testing.T, name string) {
	t.Helper()
	before := kernel.Name()
	if err := kernel.Use(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kernel.Use(before); err != nil {
			t.Error(err)
		}
	})
}
