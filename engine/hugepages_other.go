//go:build !linux

package engine

const hugePage = 2 << 20

// hugePagesFor is false: only Linux moves pages to other addresses.
func hugePagesFor(int64) bool { return false }

func moveToHugePages([]byte) bool { return false }
