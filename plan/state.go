package plan

// StateBytes is the disk space that the states of these units, in the order of execution, take at most at one time: a state
// is there from the first of its units to the last.
func (p *Plan) StateBytes(units []Unit) int64 {
	left := map[string]int{}
	for _, u := range units {
		left[u.State]++
	}
	bytes := map[string]int64{}
	for _, s := range p.States {
		bytes[s.ID] = s.Bytes
	}
	var now, most int64
	begun := map[string]bool{}
	for _, u := range units {
		if !begun[u.State] {
			begun[u.State] = true
			now += bytes[u.State]
			most = max(most, now)
		}
		if left[u.State]--; left[u.State] == 0 {
			now -= bytes[u.State]
		}
	}
	return most
}
