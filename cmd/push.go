package cmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/internal/settings"
	"onering/models"
	"onering/models/hub"
	"onering/policy"
	"onering/sampler"
	"onering/train"
)

func newPush() *cobra.Command {
	p := pushCommand{Revision: "main"}
	return newCommand("push", &p, func(c *cobra.Command, _ []string) error { return p.run(c) })
}

// A pushCommand has the flags of push.
type pushCommand struct {
	Model    string `help:"model folder, checkpoint or folder of a run (required)" required:"true" complete:"dir"`
	To       string `help:"repository on the hub, OWNER/NAME (required)" required:"true"`
	Revision string `help:"branch"`
	Private  bool   `help:"make the repository private if it is new; refuse one that is public"`
	Message  string `help:"title of the commit (default: what is sent)"`
	License  string `help:"license that the model card names, such as apache-2.0"`
	DryRun   bool   `help:"list the files and their bytes, and send nothing"`
	JSON     bool   `help:"print one JSON object"`
}

var licenseName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)

// run checks the flags, and sends the files to the hub or, with --dry-run, lists them.
func (p *pushCommand) run(c *cobra.Command) error {
	if p.License != "" && !licenseName.MatchString(p.License) {
		return usagef("--license %q: want the hub's name of a license, such as apache-2.0, mit or other", p.License)
	}
	if info, err := os.Stat(p.Model); err != nil {
		return cli.Unreadable("--model", p.Model, err, "name a model folder, a checkpoint or the folder of a run")
	} else if !info.IsDir() {
		return fmt.Errorf("--model %q: not a folder", p.Model)
	}
	sources, err := p.sources()
	if err != nil {
		return err
	}
	if p.DryRun {
		return p.list(c, sources)
	}
	return p.push(c, sources)
}

// sources returns the files that a push sends, with the model card. It replaces p.Model by the folder that is sent,
// the newest checkpoint of a run, and sets the title of the commit if there is none.
func (p *pushCommand) sources() ([]hub.Source, error) {
	run := train.Folder(p.Model)
	folder, err := run.Model()
	if err != nil {
		return nil, err
	}
	p.Model = folder
	card := newCard(folder, p.To, p.License)
	if card.Adapter = models.IsAdapter(folder); !card.Adapter {
		if err := models.Check(folder); err != nil {
			return nil, err
		}
	}
	sources, err := hub.Sources(folder)
	if err != nil {
		return nil, err
	}
	// An sft folder serves as model and as run: the other files of the run are not pushed.
	_, noRun := os.Lstat(filepath.Join(folder, "run.toml"))
	sources = slices.DeleteFunc(sources, func(s hub.Source) bool {
		top, _, _ := strings.Cut(s.Name, "/")
		return noRun == nil && run.Holds(top)
	})
	p.Message = cmp.Or(p.Message, card.Title())
	return card.With(folder, sources)
}

// list prints the files that a push would send, with their bytes and sum, as a table or with --json as an object.
func (p *pushCommand) list(c *cobra.Command, sources []hub.Source) error {
	type file struct {
		Name  string `json:"name"`
		Bytes int64  `json:"bytes"`
	}
	out := struct {
		Model  string `json:"model"`
		To     string `json:"to"`
		Branch string `json:"branch"`
		Bytes  int64  `json:"bytes"`
		Files  []file `json:"files"`
	}{Model: p.Model, To: p.To, Branch: p.Revision}
	for _, s := range sources {
		out.Bytes += s.Size
		out.Files = append(out.Files, file{s.Name, s.Size})
	}
	if p.JSON {
		return cli.WriteLine(c.OutOrStdout(), out)
	}
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, f := range out.Files {
		fmt.Fprintf(t, "%d\t %s\n", f.Bytes, f.Name)
	}
	fmt.Fprintf(t, "%d\t bytes of %s to %s, branch %s\n", out.Bytes, out.Model, out.To, out.Branch)
	return t.Flush()
}

// push sends the files, logs what changed on the hub, and prints the address of the repository.
func (p *pushCommand) push(c *cobra.Command, sources []hub.Source) error {
	options, endProgress := hubOptions(c)
	options.Revision = p.Revision
	out, err := hub.Push(c.Context(), p.To, sources, hub.PushOptions{Options: options, Private: p.Private, Message: p.Message})
	endProgress()
	if err != nil {
		return err
	}
	count := map[string]int{} // files by what became of them: sent, stored before, unchanged
	for _, f := range out.Files {
		count[f.State]++
	}
	text := "pushed the model"
	if !out.Changed {
		text = "the repository has all of it: there is nothing to push"
	}
	slog.Info(text, "branch", out.Branch, "commit", out.Commit, "sent", count["sent"], "stored", count["stored"], "unchanged", count["unchanged"])
	if len(out.Removed) > 0 {
		slog.Warn("removed the weights that were there under other names", "files", out.Removed)
	}
	return show(c, p.JSON, out, func(w io.Writer) error { _, err := fmt.Fprintln(w, out.URL); return err })
}

// cardKeys are the settings that a card shows: those that say how the model was trained. No path of this machine is
// among them, nor anything that could hold a password. All of [objective] follows.
var cardKeys = map[string][]string{
	"model":     {"template", "dtype"},
	"rollout":   {"prompts_per_round", "samples_per_prompt", "max_new_tokens"}, // the settings of sampling are added
	"reward":    {"name"},
	"optimizer": {"name", "learning_rate", "beta1", "beta2", "weight_decay", "max_grad_norm", "warmup", "schedule"},
	"train":     {"rounds", "batch_size", "epochs", "seed"},
}

var (
	// plainName matches the texts that a card shows: names, not prompts or paths.
	plainName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,40}$`)
	stepName  = regexp.MustCompile(`^step-0*([0-9]+)$`)
)

// newCard describes the model of a folder for the repository to. Of a checkpoint in a run folder it adds the step,
// the base model and those settings of the run that onCard allows; it warns of an error in them, and leaves them out.
func newCard(folder, to, license string) hub.Card {
	k := hub.Card{Name: to[strings.LastIndexByte(to, '/')+1:], License: license}
	if abs, err := filepath.Abs(folder); err == nil {
		if m := stepName.FindStringSubmatch(filepath.Base(abs)); m != nil {
			k.Step = m[1]
		}
	}
	run, err := policy.ReadRun(folder)
	if err == nil && (run == nil || filepath.Dir(run.File) == filepath.Clean(folder)) { // a run.toml in folder itself is of sft or dpo
		return k
	}
	var config *resolved
	if err == nil {
		config, err = resolve(run.Settings)
	}
	if err != nil {
		slog.Warn("the model card goes without the settings of the run", "reason", err)
		return k
	}
	k.Base = config.Model.Path
	var b bytes.Buffer
	for _, s := range settings.Sections(&config.Config) {
		s.Fields = slices.DeleteFunc(s.Fields, func(f settings.Field) bool { return !onCard(s.Name, f) })
		if len(s.Fields) == 0 {
			continue
		}
		b.WriteByte('\n')
		if err := s.Write(&b); err != nil {
			slog.Warn("the model card goes without the settings of the run", "reason", err)
			return k
		}
	}
	k.Settings = strings.TrimSpace(b.String())
	return k
}

// onCard says whether the card shows a setting.
func onCard(section string, f settings.Field) bool {
	keys := cardKeys[section]
	if section == "rollout" {
		for _, f := range (sampler.Sampling{}).Drawing() {
			keys = append(keys, f.Key)
		}
	}
	if section != "objective" && !slices.Contains(keys, f.Key) {
		return false
	}
	text, ok := f.Value.Interface().(string)
	return !ok || plainName.MatchString(text)
}

// newPusher returns what pushes the run's checkpoints; nil if p names no repository. It asks the hub at once whether
// the run may push, so that it is refused before it begins.
func newPusher(ctx context.Context, p train.Pushing, options hub.Options) (*train.Pusher, error) {
	if p.PushTo == "" {
		return nil, nil
	}
	options.Progress = nil // the terminal shows the run
	how := hub.PushOptions{Options: options, Private: p.PushPrivate}
	if err := hub.CheckPush(ctx, p.PushTo, how); err != nil {
		return nil, fmt.Errorf("output.push_to = %q: %w", p.PushTo, err)
	}
	return &train.Pusher{Pushing: p, Push: func(checkpoint string) error {
		c := pushCommand{Model: checkpoint, To: p.PushTo}
		sources, err := c.sources()
		if err != nil {
			return err
		}
		how.Message = c.Message
		out, err := hub.Push(ctx, p.PushTo, sources, how)
		if err == nil {
			slog.Info("pushed a checkpoint", "checkpoint", filepath.Base(checkpoint), "commit", out.Commit, "url", out.URL)
		}
		return err
	}}, nil
}

// finishPushing pushes the result of a run. Its error names the command that does the same later.
func finishPushing(p *train.Pusher, run string) error {
	last, err := train.Folder(run).Model()
	if err != nil || p.Finish(last) {
		return err
	}
	return unpushed{fmt.Errorf("the run is finished, but its last checkpoint could not be pushed to %s: onering push --model %s --to %s",
		p.PushTo, cli.ShellQuoted(cli.Nearest(run)), p.PushTo)}
}

// unpushed is the error of a finished run whose last push failed.
type unpushed struct{ error }

// splitUnpushed takes the error of a finished run's last push out of err, so that the summary is printed first.
func splitUnpushed(err error) (run, push error) {
	if failed, ok := errors.AsType[unpushed](err); ok {
		return nil, failed.error
	}
	return err, nil
}
