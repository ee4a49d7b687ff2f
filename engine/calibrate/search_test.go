package calibrate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"attnbudget/engine/drop"

	"github.com/google/go-cmp/cmp"
)

func full(n int) []drop.Role {
	roles := make([]drop.Role, n)
	for i := range roles {
		roles[i] = drop.Role{Kind: drop.Full, Owner: i}
	}
	return roles
}

func masks(t *testing.T, roles []drop.Role, sets ...[]int) []drop.Mask {
	t.Helper()
	var out []drop.Mask
	for _, s := range sets {
		m, err := drop.Resolve(roles, s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func span(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// measured is a Measure whose scores are a function of mask and chunk.
func measured(f func(m drop.Mask, chunk int) float64) Measure {
	return func(_ context.Context, chunk int, masks []drop.Mask) ([]Score, error) {
		out := make([]Score, len(masks))
		for i, m := range masks {
			v := f(m, chunk)
			out[i] = Score{NLL: v, KL: v}
		}
		return out, nil
	}
}

// noise is a reproducible standard normal number for a mask and a chunk.
func noise(seed uint64, m drop.Mask, chunk int) float64 {
	h := seed*1e9 + uint64(chunk)
	for _, l := range m.Layers() {
		h = h*131 + uint64(l) + 1
	}
	return rand.New(rand.NewPCG(h, seed)).NormFloat64()
}

func TestUnitsFollowTheRoles(t *testing.T) {
	shared := full(6) // layer 1 is read by 3 and 5, layer 2 by 4
	shared[3].Owner, shared[5].Owner, shared[4].Owner = 1, 1, 2
	hybrid := full(6) // qwen35-like: gated at 2 and 5
	for i := range hybrid {
		hybrid[i] = drop.Role{Kind: drop.Recurrent, Owner: drop.None}
	}
	hybrid[2], hybrid[5] = drop.Role{Kind: drop.Gated, Owner: 2}, drop.Role{Kind: drop.Gated, Owner: 5}
	for _, c := range []struct {
		name  string
		roles []drop.Role
		mask  []int
		want  []Unit
	}{
		{"every layer alone", full(3), nil, []Unit{{0}, {1}, {2}}},
		{"what is dropped is no unit", full(3), []int{1}, []Unit{{0}, {2}}},
		{"the last layer that stores keys stays", full(2), []int{1}, nil},
		{"an owner takes its consumers along", shared, nil, []Unit{{0}, {1, 3, 5}, {2, 4}, {3}, {4}, {5}}},
		{"a dropped consumer leaves the bundle", shared, []int{3}, []Unit{{0}, {1, 5}, {2, 4}, {4}, {5}}},
		{"only gated layers", hybrid, nil, []Unit{{2}, {5}}},
		{"the last gated layer stays", hybrid, []int{2}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Units(c.roles, masks(t, c.roles, c.mask)[0])); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGreedyCommitsTheLeastHarmfulOnTopOfWhatIsCommitted(t *testing.T) {
	// Alone 0 < 1 < 2 < 3; but 1 on top of 0 is bad, so the second step is 2.
	value := func(m drop.Mask, chunk int) float64 {
		d := 0.0
		for _, l := range m.Layers() {
			d += 0.01 * float64(l+1)
		}
		if m.Has(0) && m.Has(1) {
			d += 1
		}
		return d + 0.001*noise(1, m, chunk)
	}
	s := NewSearch(Search{Roles: full(4), Metric: NLL, Chunks: span(16), MaxDamage: 0.5, Alpha: 0.05}, measured(value))
	steps, err := s.Greedy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, step := range steps {
		got = append(got, step.Mask.String())
	}
	if diff := cmp.Diff([]string{"0", "0,2", "0,2,3"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestGreedyStopsWithTheFirstStepBeyondTheDamageAsked(t *testing.T) {
	s := NewSearch(Search{Roles: full(6), Metric: KL, Chunks: span(4), MaxDamage: 2.5},
		measured(func(m drop.Mask, _ int) float64 { return float64(len(m.Layers())) }))
	steps, err := s.Greedy(t.Context())
	if err != nil || len(steps) != 3 {
		t.Fatalf("%d steps, %v; want 3", len(steps), err)
	}
}

func TestShortlistLeavesOutWhatIsTooHarmfulAlone(t *testing.T) {
	s := NewSearch(Search{Roles: full(4), Metric: NLL, Chunks: span(8), MaxDamage: 0.1},
		measured(func(m drop.Mask, chunk int) float64 {
			return []float64{0.05, 0.5, 0.02, 0.106}[m.Layers()[0]] + 0.01*noise(2, m, chunk)
		}))
	alone, err := s.Alone(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if e := estimate(NLL.all(alone[2].Scores)); e.Mean <= 0.1 {
		t.Fatalf("%v is not beyond the limit: the test tests less than it should", e)
	}
	if got := s.Shortlist(alone, 0); !slices.Equal(got, []int{0, 2, 3}) {
		t.Errorf("shortlist %v, want 0, 2 and, within two standard errors of the limit, 3", got)
	}
	if got := s.Shortlist(alone, 1); !slices.Equal(got, []int{2}) {
		t.Errorf("shortlist of one %v, want the best", got)
	}
}

func TestTiesAreWhatCannotBeToldFromTheWinner(t *testing.T) {
	means := []float64{0.10, 0.1001, 0.2, 0.3}
	s := NewSearch(Search{Roles: full(4), Metric: NLL, Chunks: span(32), Most: 1, MaxDamage: 1},
		measured(func(m drop.Mask, chunk int) float64 { return means[m.Layers()[0]] + 0.01*noise(3, m, chunk) }))
	steps, err := s.Greedy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := []string{steps[0].Mask.String()}
	for _, m := range steps[0].Ties {
		names = append(names, m.String())
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"0", "1"}, names); diff != "" {
		t.Error(diff)
	}
}

// The race's promise: in at most alpha of all races the best mask of the whole split has gone out. Chunk means here are
// normal, and two contenders are close behind the best.
func TestARaceSparesTheWinner(t *testing.T) {
	const races = 400
	lost, spent := 0, 0
	for seed := range uint64(races) {
		value := func(m drop.Mask, chunk int) float64 {
			return []float64{0.10, 0.103, 0.105, 0.2, 0.3, 0.4}[m.Layers()[0]] + 0.02*noise(seed, m, chunk)
		}
		s := NewSearch(Search{Roles: full(6), Metric: NLL, Chunks: span(32), Alpha: 0.05}, measured(value))
		field, err := s.race(t.Context(), s.grown(drop.Mask{}), 1)
		if err != nil {
			t.Fatal(err)
		}
		spent += s.Evaluations()
		whole := NewSearch(Search{Roles: full(6), Metric: NLL, Chunks: span(32)}, measured(value))
		alone, err := whole.Alone(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if field[0].Mask != alone[0].Mask {
			lost++
		}
	}
	if limit := 0.05*races + 2*math.Sqrt(0.05*0.95*races); float64(lost) > limit {
		t.Errorf("the winner went out in %d of %d races, more than %.0f", lost, races, limit)
	}
	if share := float64(spent) / (races * 6 * 32); share > 0.8 {
		t.Errorf("races measured %.0f%% of everything: nothing stops early", 100*share)
	}
}

// With 4 chunks, 5 masks and one look a mask that is worse with t = 4.7, p = 0.009, goes out at level 0.05/4 but not at 0.05/8.
func TestTheLevelOfARaceIsSharedAmongThoseThatAreKept(t *testing.T) {
	value := func(m drop.Mask, chunk int) float64 {
		if m.Has(0) || m.Has(1) {
			return 0
		}
		return 1 + 0.3685*float64(1-2*(chunk%2))
	}
	roles := full(5)
	for keep, want := range map[int]bool{1: true, 2: false} {
		s := NewSearch(Search{Roles: roles, Metric: NLL, Chunks: span(5), Alpha: 0.05, MaxDamage: 10}, measured(value))
		field, err := s.race(t.Context(), masks(t, roles, []int{0}, []int{1}, []int{2}, []int{3}, []int{4}), keep)
		if err != nil {
			t.Fatal(err)
		}
		if field[4].Out != want {
			t.Errorf("%d kept: the worst is out %t after %d chunks", keep, field[4].Out, len(field[4].Scores))
		}
	}
}

// trap is a damage with pairs that are only harmless together, which greedy cannot see.
func trap(seed uint64, n int) func(m drop.Mask, chunk int) float64 {
	rng := rand.New(rand.NewPCG(seed, 7))
	alone, pair := make([]float64, n), make([]float64, n*n)
	for i := range alone {
		alone[i] = 0.02 + 0.1*rng.Float64()
	}
	for i := range pair {
		pair[i] = 0.08 * rng.NormFloat64()
	}
	return func(m drop.Mask, chunk int) float64 {
		d := 0.0
		for _, i := range m.Layers() {
			d += alone[i]
			for _, j := range m.Layers() {
				if j > i {
					d += pair[i*n+j]
				}
			}
		}
		return d + 0.003*noise(seed, m, chunk)
	}
}

func TestBeamAndEvolveAreNeverWorseThanGreedyAndOftenBetter(t *testing.T) {
	better := map[string]int{}
	for seed := range uint64(20) {
		s := NewSearch(Search{Roles: full(10), Metric: NLL, Chunks: span(12), Alpha: 0.05, Most: 5, MaxDamage: 10}, measured(trap(seed, 10)))
		greedy, err := s.Greedy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, search := range map[string]func(context.Context, []Step) ([]Step, error){
			"beam": func(ctx context.Context, g []Step) ([]Step, error) { return s.Beam(ctx, g, 4) },
			"evolve": func(ctx context.Context, g []Step) ([]Step, error) {
				return s.Evolve(ctx, g, Evolution{Survivors: 4, Offspring: 6, Generations: 8, Seed: seed})
			},
		} {
			steps, err := search(t.Context(), greedy)
			if err != nil {
				t.Fatal(err)
			}
			if len(steps) != len(greedy) {
				t.Fatalf("%s: %d steps, greedy %d", name, len(steps), len(greedy))
			}
			for i := range steps {
				ours, theirs := steps[i].NLL().Mean, greedy[i].NLL().Mean
				if len(steps[i].Mask.Layers()) != len(greedy[i].Mask.Layers()) || len(steps[i].Scores) != 12 {
					t.Errorf("%s step %d: mask %s with %d chunks beside greedy's %s", name, i, steps[i].Mask, len(steps[i].Scores), greedy[i].Mask)
				}
				if ours > theirs {
					t.Errorf("%s step %d is worse than greedy: %v > %v", name, i, ours, theirs)
				} else if ours < theirs {
					better[name]++
				}
			}
		}
	}
	for _, name := range []string{"beam", "evolve"} {
		if better[name] < 20 {
			t.Errorf("%s is better than greedy in %d of 100 steps: it does not search", name, better[name])
		}
	}
}

// What an earlier race left half measured a later one with more places may measure to the end.
func TestAMaskThatBeamMeasuredToTheEndCountsAlthoughItWasOutBefore(t *testing.T) {
	value := func(m drop.Mask, chunk int) float64 {
		switch {
		case m.Has(0):
			return 0.5
		case m.Has(1) && chunk < 8:
			return 1 + 1e-3*noise(1, m, chunk)
		case m.Has(1):
			return 0
		}
		return 3
	}
	s := NewSearch(Search{Roles: full(5), Metric: NLL, Chunks: span(32), Alpha: 0.05, Most: 1, MaxDamage: 10}, measured(value))
	greedy, err := s.Greedy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := greedy[0].Mask.Canonical(); got != "0" {
		t.Fatalf("greedy takes %s: the test tests nothing", got)
	}
	steps, err := s.Beam(t.Context(), greedy, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := steps[0].Mask.Canonical(); got != "1" {
		t.Errorf("beam takes %s, which adds %.2f nats; 1 adds 0.25", got, steps[0].NLL().Mean)
	}
}

func TestEvolveRepeatsItselfAndKeepsToItsEvaluations(t *testing.T) {
	run := func(limit int) (string, int) {
		s := NewSearch(Search{Roles: full(12), Metric: NLL, Chunks: span(8), Most: 5, MaxDamage: 10}, measured(trap(3, 12)))
		greedy, err := s.Greedy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.ledger.restart()
		steps, err := s.Evolve(t.Context(), greedy, Evolution{Survivors: 3, Offspring: 4, Generations: 50, Evaluations: limit, Seed: 9})
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, step := range steps {
			out += fmt.Sprintln(step.Mask, step.NLL().Mean)
		}
		return out, s.Evaluations()
	}
	first, n := run(400)
	if again, _ := run(400); again != first {
		t.Errorf("the same seed found\n%sand then\n%s", first, again)
	}
	if most := 400 + 7*8; n > most {
		t.Errorf("%d evaluations, want at most %d: the limit and one race", n, most)
	}
}

func TestNothingIsMeasuredTwice(t *testing.T) {
	seen := map[point]int{}
	s := NewSearch(Search{Roles: full(6), Metric: NLL, Chunks: span(8), Alpha: 0.05, MaxDamage: 10}, func(_ context.Context, chunk int, masks []drop.Mask) ([]Score, error) {
		for _, m := range masks {
			seen[point{m, chunk}]++
		}
		return make([]Score, len(masks)), nil
	})
	if _, err := s.Alone(t.Context()); err != nil {
		t.Fatal(err)
	}
	greedy, err := s.Greedy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Beam(t.Context(), greedy, 3); err != nil {
		t.Fatal(err)
	}
	for p, n := range seen {
		if n > 1 {
			t.Errorf("mask %s was measured %d times on chunk %d", p.mask, n, p.chunk)
		}
	}
	if len(seen) != s.Evaluations() {
		t.Errorf("%d evaluations counted, %d made", s.Evaluations(), len(seen))
	}
}

func TestEstimates(t *testing.T) {
	e := estimate([]float64{1, 2, 3, 4})
	if e.Mean != 2.5 || math.Abs(e.SE-math.Sqrt(5.0/3)/2) > 1e-12 || e.Chunks != 4 {
		t.Errorf("%+v", e)
	}
	for _, c := range []struct {
		name  string
		e     Estimate
		alpha float64
		want  bool
	}{
		// t quantiles from published tables: 2.353 at 0.95 with 3 degrees of freedom
		{"just above the quantile", Estimate{2.36, 1, 4}, 0.05, true},
		{"just below the quantile", Estimate{2.34, 1, 4}, 0.05, false},
		{"one chunk proves nothing", Estimate{9, 0, 1}, 0.05, false},
		{"no spread", Estimate{1e-9, 0, 3}, 0.001, true},
		{"equal", Estimate{0, 0, 3}, 0.05, false},
	} {
		if got := c.e.above(c.alpha); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
