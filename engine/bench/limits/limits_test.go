package limits

import (
	"testing"
	"time"
)

func TestEveryReadLoopReadsAllBytes(t *testing.T) {
	for _, l := range []loops{generic(), best()} {
		b := make([]byte, 1024)
		before := l.read(b)
		for at := range b {
			b[at] = 1
			if l.read(b) == before {
				t.Errorf("%s: byte %d is not read", l.name, at)
			}
			b[at] = 0
		}
	}
}

func TestTwiceTheRoundsTakeAboutTwiceAsLong(t *testing.T) {
	for _, l := range []loops{generic(), best()} {
		shortest := func(n int) time.Duration {
			least := time.Hour
			for range 20 {
				start := time.Now()
				l.multiplyAdd(n)
				least = min(least, time.Since(start))
			}
			return least
		}
		once, twice := shortest(100_000), shortest(200_000)
		if twice < once*3/2 {
			t.Errorf("%s: %v for one amount, %v for twice as much", l.name, once, twice)
		}
	}
}

func TestRatesArePositiveAndWithinReason(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for a second")
	}
	l := Measure(1)
	if l.Threads != 1 || l.Loops != best().name {
		t.Errorf("measured with %d threads and %s loops", l.Threads, l.Loops)
	}
	if l.ReadBytes < 1e8 || l.ReadBytes > 1e12 || l.MultiplyAdd < 1e8 || l.MultiplyAdd > 1e12 {
		t.Errorf("%.3g B/s and %.3g operations/s on one thread", l.ReadBytes, l.MultiplyAdd)
	}
}
