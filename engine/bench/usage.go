package bench

import "runtime/metrics"

// usage is what happened to the process that a measurement does not want.
type usage struct{ collections, minorFaults, majorFaults int64 }

func usageNow() usage {
	s := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(s)
	u := usage{collections: int64(s[0].Value.Uint64())}
	u.minorFaults, u.majorFaults = faults()
	return u
}

func (u usage) since(before usage) usage {
	return usage{u.collections - before.collections, u.minorFaults - before.minorFaults, u.majorFaults - before.majorFaults}
}
