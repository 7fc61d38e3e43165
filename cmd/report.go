package cmd

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

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

// newWatch makes the command watch, which shows how a run goes, once or again and again.
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
			text, _, err := report.View(args[0], 80, math.MaxInt)
			if err != nil {
				return err
			}
			_, err = io.WriteString(out, text)
			return err
		}
		return followRun(c, f, args[0])
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

// followRun draws the view again and again, until the run is finished or a signal
// comes.
func followRun(c *cobra.Command, out *os.File, dir string) error {
	ctx, _, stop := cli.CatchSignals(c.Context())
	defer stop()
	const (
		home  = "\x1b[H"
		clear = "\x1b[2J"
		toEnd = "\x1b[J"
		enter = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
		leave = "\x1b[?25h\x1b[?1049l"
	)
	fmt.Fprint(out, enter, clear)
	last := ""
	// The last view stays in the terminal.
	defer func() { fmt.Fprint(out, leave, last) }()
	var size int64 = -1
	var width, height int
	for {
		var grown int64
		if info, err := os.Stat(filepath.Join(dir, "metrics.jsonl")); err == nil {
			grown = info.Size()
		}
		w, h := 80, 24
		if a, b, err := term.GetSize(int(out.Fd())); err == nil {
			w, h = a, b
		}
		wait := time.Second
		if grown != size || w != width || h != height {
			began := time.Now()
			text, done, err := report.View(dir, w, h-1) // the shell's prompt needs a line
			if err != nil {
				return err
			}
			size, width, height, last = grown, w, h, text
			// Clear each line to its end, where a longer line may have been. A newline
			// after the last line would scroll a full screen.
			fmt.Fprint(out, home, strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\x1b[K\r\n"), "\x1b[K", toEnd)
			if done {
				return nil
			}
			wait = max(wait, 10*time.Since(began)) // reading a long run takes time, so it is read less often
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}
