//go:build unix

package atomicfile

import (
	"errors"
	"os"
)

// SyncFolder makes the names in a folder durable, which a rename or a removal alone is not.
func SyncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
