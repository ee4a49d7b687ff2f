//go:build !linux

package bench

import "errors"

func forget(string) error { return errors.New("this system offers no way to ask for it") }
