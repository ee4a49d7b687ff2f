package fetch

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/quant"
	"attnbudget/engine/synth"
)

// Synth is a model of random weights in the shape of a real one.
type Synth struct {
	Shape  string // one of synth.Names
	Format string // of the file
	Layers int    // its first layers only; 0 = all
	Seed   uint64 // of the weights
}

// ParseSynth reads SHAPE, or SHAPE with options behind it: SHAPE:layers=4:format=Q4_0:seed=2. A format that is not given is
// the default. The error may be a *synth.UnknownShapeError.
func ParseSynth(text, format string) (Synth, error) {
	shape, rest, more := strings.Cut(text, ":")
	s := Synth{Shape: shape, Format: format, Seed: 1}
	given := map[string]bool{}
	for more {
		var option string
		option, rest, more = strings.Cut(rest, ":")
		key, value, _ := strings.Cut(option, "=")
		if given[key] {
			return Synth{}, fmt.Errorf("%s is given twice", key)
		}
		given[key] = true
		if err := s.set(key, value); err != nil {
			return Synth{}, err
		}
	}
	mix, err := quant.ParseMix(s.Format)
	if err != nil {
		return Synth{}, err
	}
	s.Format = mix.String()
	// Describe knows which shapes and numbers of layers there are.
	_, err = synth.Describe(s.Shape, s.Format, synth.Options{Layers: s.Layers, Seed: s.Seed})
	return s, err
}

func (s *Synth) set(key, value string) (err error) {
	switch key {
	case "layers":
		if s.Layers, err = strconv.Atoi(value); err != nil || s.Layers < 1 {
			return fmt.Errorf("layers must be a whole number of at least 1, found %q", value)
		}
	case "format":
		s.Format = value
	case "seed":
		if s.Seed, err = strconv.ParseUint(value, 10, 63); err != nil {
			return fmt.Errorf("seed must be a whole number, found %q", value)
		}
	default:
		return fmt.Errorf("unknown option %q: possible are layers=N, format=FORMAT and seed=N", key)
	}
	return nil
}

func (s Synth) String() string {
	text := SynthPrefix + s.Shape
	if s.Layers > 0 {
		text += fmt.Sprintf(":layers=%d", s.Layers)
	}
	return fmt.Sprintf("%s:format=%s:seed=%d", text, s.Format, s.Seed)
}

// Bytes is the size of the tensors. The metadata, a vocabulary for the most part, comes on top.
func (s Synth) Bytes() int64 {
	f, err := synth.Describe(s.Shape, s.Format, synth.Options{Layers: s.Layers, Seed: s.Seed})
	if err != nil {
		return -1
	}
	var size int64
	for _, t := range f.Tensors {
		size += t.Bytes()
	}
	return size
}

// key has the engine's version because another version may make other weights of the same seed.
func (s Synth) key() string {
	layers := ""
	if s.Layers > 0 {
		layers = fmt.Sprintf("-layers%d", s.Layers)
	}
	return fmt.Sprintf("synth-%s%s-%s-seed%d-v%s", s.Shape, layers, s.Format, s.Seed, engine.Version)
}

func (s Synth) files() []string { return []string{s.file()} }

func (s Synth) file() string { return s.Shape + "-" + s.Format + ".gguf" }

// fill writes the model anew: at the speed of the disk there is nothing to be gained by going on.
func (s Synth) fill(ctx context.Context, folder string, progress Progress) error {
	if err := removeBut(folder, nil); err != nil {
		return err
	}
	progress(s.file(), 0, s.Bytes())
	return synth.Write(ctx, filepath.Join(folder, s.file()), s.Shape, s.Format, synth.Options{Layers: s.Layers, Seed: s.Seed})
}
