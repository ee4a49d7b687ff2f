package plan

import (
	"fmt"
	"time"
)

// Deadline turns Plan.Until into an instant: "07:00" is the next time that the clock of now's zone shows it, anything
// else is an RFC 3339 time such as 2026-01-31T07:00:00+01:00. The empty string is no deadline, the zero time.
func Deadline(until string, now time.Time) (time.Time, error) {
	if until == "" {
		return time.Time{}, nil
	}
	if clock, err := time.Parse("15:04", until); err == nil {
		at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
		if !at.After(now) {
			at = at.AddDate(0, 0, 1)
		}
		return at, nil
	}
	at, err := time.Parse(time.RFC3339, until)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither a time of day such as 07:00 nor a time such as 2026-01-31T07:00:00+01:00", until)
	}
	return at, nil
}
