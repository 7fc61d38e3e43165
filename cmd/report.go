package cmd

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/report"
	"onering/train/rl"
)

// newReport makes the command report, which writes a page on runs.
func newReport() *cobra.Command {
	var o struct {
		Out   string `short:"o" complete:"html" help:"file of the page; - is stdout; default: report.html in the run folder, for several runs in the working folder"`
		Title string `help:"title at the top of the page"`
	}
	return newCommand("report", &o, func(c *cobra.Command, args []string) error {
		page := cmp.Or(o.Out, "report.html")
		if o.Out == "" && len(args) == 1 {
			page = filepath.Join(args[0], page)
		}
		if err := checkOutput(c, "out", page); err != nil {
			return err
		}
		var runs []*report.Run
		for _, dir := range args {
			r, err := report.ReadRun(dir)
			if err != nil {
				return err
			}
			runs = append(runs, r)
		}
		if page == "-" {
			return report.Write(cli.Raw(c.OutOrStdout()), runs, report.Options{Title: o.Title})
		}
		if info, err := os.Stat(page); err == nil && info.IsDir() {
			return usagef("--out %q: it is a folder; name a file for the page, such as %s", page, filepath.Join(page, "report.html"))
		}
		if err := report.WriteFile(page, runs, report.Options{Title: o.Title}); err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), page)
		return nil
	})
}

// newWatch makes the command watch, which shows how a run goes: again and again on a terminal, and else once.
func newWatch() *cobra.Command {
	var o struct {
		Once bool `help:"print the view once, as onering status does"`
		JSON bool `help:"print one JSON object: the summary of the run so far, with what is wrong and its cause"`
	}
	c := newCommand("watch", &o, func(c *cobra.Command, args []string) error {
		out := c.OutOrStdout()
		if o.JSON {
			return writeStatus(out, args[0])
		}
		f := cli.Screen(out)
		if o.Once || c.CalledAs() == "status" || f == nil || os.Getenv("TERM") == "dumb" {
			text, _, err := report.View(args[0], 80, math.MaxInt) // 80 columns, and as many lines as it takes
			if err != nil {
				return err
			}
			_, err = io.WriteString(out, text)
			return err
		}
		ctx, _, stop := cli.CatchSignals(c.Context())
		defer stop()
		return report.Follow(ctx, f, args[0])
	})
	c.Aliases = []string{"status"}
	return c
}

// writeStatus prints the summary of a run so far.
func writeStatus(w io.Writer, dir string) error {
	run, err := report.ReadRun(dir)
	if err != nil {
		return err
	}
	s, err := rl.ReadSummary(dir)
	if err != nil {
		return err
	}
	return cli.WriteLine(w, struct {
		rl.Summary
		Done bool `json:"done"`
	}{s, run.Finished()})
}
