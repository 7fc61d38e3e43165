package cmd

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"onering/report"
)

func newReport() *cobra.Command {
	var out, title string
	c := &cobra.Command{
		Use:   "report RUN...",
		Short: "Show the course of runs as one page for a browser",
		Long: `Write one self-contained page about one or several run folders: training
dynamics, a table of configurations and results, settings that differ, the pass
rate of problems over rounds, responses by problem and token by token. The page
fetches nothing and can be sent to others as it is. Runs whose configurations
differ only in seeds share a colour, with their mean on top.

The run may still be going on. "onering train" itself writes the page
report.html into the run folder.`,
		Example: `  onering report runs/out/pmpo-20260102-030405
  onering report runs/out/* -o report.html`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var runs []*report.Run
			for _, dir := range args {
				r, err := report.ReadRun(dir)
				if err != nil {
					return err
				}
				runs = append(runs, r)
			}
			if out == "" && len(args) == 1 {
				out = filepath.Join(args[0], "report.html")
			} else if out == "" {
				out = "report.html"
			}
			if out == "-" {
				return report.Write(raw(c.OutOrStdout()), runs, report.Options{Title: title})
			}
			if err := writeReport(out, runs, report.Options{Title: title}); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), out)
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVarP(&out, "out", "o", "", "file of the page; - is stdout; default: report.html in the run folder, for several runs in the working folder")
	flags.StringVar(&title, "title", "", "title at the top of the page")
	must(c.MarkFlagFilename("out", "html"))
	return c
}

// writeReport writes a page to a file.
func writeReport(path string, runs []*report.Run, o report.Options) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return usagef("--out %q: it is a folder; name a file for the page, such as %s", path, filepath.Join(path, "report.html"))
	}
	return report.WriteFile(path, runs, o)
}
