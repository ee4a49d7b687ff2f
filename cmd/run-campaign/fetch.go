package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"attnbudget/campaigns"
	"attnbudget/campaigns/fetch"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

func newFetch() *cobra.Command {
	return &cobra.Command{
		Use:   "fetch FILE",
		Short: "Download or make the models that a campaign needs",
		Long: `Puts the models of the campaign in FILE that are named by hf:OWNER/REPO/FILE or synth:SHAPE into the cache (ATTNBUDGET_CACHE, or
attnbudget in the user's cache folder), as "run" does before anything else. A download that was broken off goes on where it
stopped; every download must have the SHA-256 that the campaign says.

HF_ENDPOINT names another hub than huggingface.co, HF_TOKEN is sent to it for repositories that are not open to everybody.`,
		Example: `  run-campaign fetch night.yaml`,
		Args:    positional("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			campaign, err := loadFetching(c.Context(), args[0], c.ErrOrStderr())
			if err != nil {
				return err
			}
			defer campaign.Close()
			for _, m := range campaign.Plan().Models {
				if m.Path == "" {
					continue
				}
				if _, err := fmt.Fprintf(c.OutOrStdout(), "%s\t%s\t%s\n", m.Name, campaigns.Size(m.Bytes), m.Path); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// loadFetching loads a campaign. If models are missing, and nothing else is wrong with it, they are fetched first.
func loadFetching(ctx context.Context, file string, w io.Writer) (*campaigns.Campaign, error) {
	campaign, err := campaigns.Load(ctx, file)
	missing := campaigns.Missing(err)
	if len(missing) == 0 {
		return campaign, err
	}
	for _, s := range missing {
		fmt.Fprintln(w, "fetching", s)
		bars := newByteBars(w)
		path, err := fetch.Get(ctx, s, bars.show)
		bars.close()
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(w, "fetched ", path)
	}
	return campaigns.Load(ctx, file)
}

// byteBars shows a bar for each file of a model; on anything but a terminal it shows nothing.
type byteBars struct {
	progress *mpb.Progress
	bars     map[string]*mpb.Bar
}

func newByteBars(w io.Writer) *byteBars {
	f, ok := w.(*os.File)
	if !ok || !isatty.IsTerminal(f.Fd()) {
		return &byteBars{}
	}
	return &byteBars{mpb.New(mpb.WithOutput(f), mpb.WithWidth(40)), map[string]*mpb.Bar{}}
}

// show has done of total bytes of a file; total is negative while it is not known.
func (b *byteBars) show(file string, done, total int64) {
	if b.progress == nil {
		return
	}
	bar := b.bars[file]
	if bar == nil {
		bar = b.progress.New(0, mpb.BarStyle(),
			mpb.PrependDecorators(decor.Name(filepath.Base(file)+" "), decor.CountersKibiByte("% .1f / % .1f ")),
			mpb.AppendDecorators(decor.Percentage(), decor.Name("  "), decor.AverageETA(decor.ET_STYLE_GO)))
		bar.SetRefill(done)
		b.bars[file] = bar
	}
	bar.SetTotal(max(total, done), false)
	bar.SetCurrent(done)
}

// close leaves the bars as they are.
func (b *byteBars) close() {
	if b.progress == nil {
		return
	}
	for _, bar := range b.bars {
		bar.Abort(false)
	}
	b.progress.Wait()
}
