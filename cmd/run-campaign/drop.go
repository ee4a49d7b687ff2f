package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/calibrate"
	"attnbudget/engine/source"

	"github.com/spf13/cobra"
)

// dropFlags say which attention is dropped and what stands in for it.
type dropFlags struct {
	layers, profile, report, surrogate string
}

func (f *dropFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.layers, "attention-drop-layers", "", "layers whose attention is dropped, counted from 0, for instance 19,20,24,25")
	c.Flags().StringVar(&f.profile, "attention-drop-profile", "", "drop what this profile of the model's calibration says: minimal, light, recommended or max")
	c.Flags().StringVar(&f.report, "attention-drop-report", "", "the calibration's report (default: where calibrate writes it, beside the model)")
	c.Flags().StringVar(&f.surrogate, "attention-surrogate", "", "file of what stands in for the dropped attention, from calibrate --surrogate; without the flags above, its own layers are dropped")
}

// check finds mistakes before the model is opened and returns the layers that are listed.
func (f *dropFlags) check() ([]int, error) {
	switch {
	case f.layers != "" && f.profile != "":
		return nil, &usageError{errors.New("--attention-drop-layers and --attention-drop-profile exclude each other: a profile is a list of layers")}
	case f.report != "" && f.profile == "":
		return nil, &usageError{errors.New("--attention-drop-report needs --attention-drop-profile, which says what of the report is meant")}
	}
	return parseLayers(f.layers)
}

// bind adds to o what the flags say about this model: the layers of a profile, and surrogates. Both are refused for any model
// but the one they were made for.
func (f *dropFlags) bind(ctx context.Context, o *engine.ContextOptions, m *engine.Model, model modelFlags) error {
	if f.profile == "" && f.surrogate == "" {
		return nil
	}
	fingerprint, err := source.Fingerprint(ctx, model.model)
	if err != nil {
		return err
	}
	if f.profile != "" {
		if o.Mask, err = f.profileLayers(m, model, fingerprint); err != nil {
			return err
		}
	}
	if f.surrogate == "" {
		return nil
	}
	if o.Surrogates, err = m.OpenSurrogates(f.surrogate, fingerprint); err != nil {
		return err
	}
	if f.profile == "" && f.layers == "" {
		o.Mask = o.Surrogates.Mask().Layers()
	}
	return nil
}

func (f *dropFlags) profileLayers(m *engine.Model, model modelFlags, fingerprint string) ([]int, error) {
	path := f.report
	if path == "" {
		path = model.reportPath()
	}
	r, err := calibrate.Load(path)
	if err != nil {
		return nil, fmt.Errorf("--attention-drop-profile %s: %w; run-campaign calibrate makes a report, --attention-drop-report names another", f.profile, err)
	}
	mask, err := r.Profile(path, f.profile, fingerprint, m.Roles())
	return mask.Layers(), err
}

// parseLayers reads "0,3"; empty is no layer.
func parseLayers(s string) ([]int, error) {
	if s == "" {
		return nil, nil
	}
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, &usageError{fmt.Errorf("--attention-drop-layers %s: %q is not a layer number; write for instance 19,20,24,25", s, part)}
		}
		out = append(out, n)
	}
	return out, nil
}
