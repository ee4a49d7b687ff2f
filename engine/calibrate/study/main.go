// Command study measures the figures of docs/calibration.md: the searches beside one another, surrogates of several kinds and
// ranks, how well a held-out damage predicts that on another text, what the short cuts of the calibrator are worth in time,
// and two real models where they have been fetched. Run it as
//
//	go run ./engine/calibrate/study
//
// which prints, or as make calibration-study, which writes into the document. It is not part of the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/calibrate"
	"attnbudget/engine/source"
)

// settings say how much is measured.
type settings struct {
	model, text, other string // the model that is studied, its text, and another to check predictions on
	context            int    // tokens of a chunk
	search, heldout    int    // most chunks of each split; 0 = all
	otherChunks        int    // most of the other text; 0 = all
	speedChunks        int    // on which each way of measuring is timed
	steps              int    // most of a search; 0 = no limit
	damage             float64
	standInDamage      float64 // where searches end whose masks get surrogates, which take long to fit
	ranks              []int
	realText           string // for real models, as text and other
	realOther          string
}

// study is what its sections share.
type study struct {
	settings
	doc         document
	model       *engine.Model
	fingerprint string
	text, other []byte
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "study: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	flags := flag.NewFlagSet("study", flag.ContinueOnError)
	s := settings{ranks: []int{8, 32, 128}}
	flags.StringVar(&s.model, "m", "builtin:glossary-5m", "model")
	flags.StringVar(&s.text, "f", "builtin:calibration", "text to calibrate on")
	flags.StringVar(&s.other, "e", "builtin:evaluation", "another text, to check predictions on")
	flags.IntVar(&s.context, "c", 512, "tokens of a chunk")
	flags.IntVar(&s.search, "chunks", 24, "most chunks of each split; 0 = all")
	flags.IntVar(&s.otherChunks, "other-chunks", 0, "most chunks of the other text; 0 = all")
	flags.IntVar(&s.speedChunks, "speed-chunks", 8, "chunks that each way of measuring is timed on")
	flags.IntVar(&s.steps, "steps", 0, "most steps of a search; 0 = no limit")
	flags.Float64Var(&s.damage, "max-damage", 0.6, "where searches end, nats")
	flags.Float64Var(&s.standInDamage, "surrogate-damage", 0.25, "where searches end whose masks get surrogates, nats")
	flags.StringVar(&s.realText, "real-text", "../shared/data/wiki.valid.tokens", "text that real models are calibrated on")
	flags.StringVar(&s.realOther, "real-other", "../shared/data/wiki.test.raw", "another text, to check predictions for real models on")
	sections := flags.String("sections", "searches,surrogates,prediction,speed,real", "what to do")
	write := flags.String("write", "", "document to write into, section by section")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s.heldout = s.search
	st, err := open(ctx, s)
	if err != nil {
		return err
	}
	defer st.model.Close()
	st.doc = document{path: *write, out: out, notes: notes}
	for _, name := range strings.Split(*sections, ",") {
		section, ok := map[string]func(context.Context) error{
			"searches": st.searches, "surrogates": st.surrogates, "prediction": st.prediction, "speed": st.speed, "real": st.realModels,
		}[name]
		if !ok {
			return fmt.Errorf("no section %q", name)
		}
		if err := section(ctx); err != nil {
			return err
		}
	}
	return nil
}

func open(ctx context.Context, s settings) (*study, error) {
	st := &study{settings: s}
	var errs [4]error
	st.text, errs[0] = source.Read(s.text)
	st.other, errs[1] = source.Read(s.other)
	st.model, errs[2] = source.Model(s.model, engine.Options{})
	st.fingerprint, errs[3] = source.Fingerprint(ctx, s.model)
	return st, errors.Join(errs[:]...)
}

// job is a calibration with the study's settings.
func (s *study) job(strategy calibrate.Strategy) calibrate.Job {
	o := calibrate.Settings{
		NCtx: s.context, Search: s.search, Heldout: s.heldout, MaxDamage: s.damage, Budget: min(0.05, s.damage), Most: s.steps, Strategy: strategy, Seed: 1,
	}
	if s.search == 0 {
		o.Search, o.Heldout = 1<<20, 1<<20
	}
	return calibrate.Job{Model: s.model, Fingerprint: s.fingerprint, Text: s.text, TextName: s.settings.text, Settings: o}
}

// list writes layers as a mask.
func list(layers []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(layers), " ", ","), "[]")
}

func pm(e calibrate.Estimate) string { return fmt.Sprintf("%.4f ± %.4f", e.Mean, e.SE) }
