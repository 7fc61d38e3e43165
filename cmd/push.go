package cmd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/internal/files"
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
		return unreadable("--model", p.Model, err, "name a model folder, a checkpoint or the folder of a run")
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

// sources returns what a push sends, and sets the title of the commit if there is none.
func (p *pushCommand) sources() ([]hub.Source, error) {
	of := train.Folder(p.Model)
	folder, err := of.Model()
	if err != nil {
		return nil, err
	}
	p.Model = folder
	card := newCard(folder, p.To, p.License)
	if card.adapter = models.IsAdapter(folder); !card.adapter {
		if err := models.Check(folder); err != nil {
			return nil, err
		}
	}
	sources, err := hub.Sources(folder)
	if err != nil {
		return nil, err
	}
	// An sft folder serves as model and as run: the other files of the run are not pushed.
	_, notRun := os.Lstat(filepath.Join(folder, "run.toml"))
	sources = slices.DeleteFunc(sources, func(s hub.Source) bool {
		top, _, _ := strings.Cut(s.Name, "/")
		return notRun == nil && of.Holds(top)
	})
	if card.adapter {
		if err := card.nameBase(folder, sources); err != nil {
			return nil, err
		}
	}
	if !slices.ContainsFunc(sources, func(s hub.Source) bool { return strings.EqualFold(s.Name, "README.md") }) {
		sources = append(sources, card.source())
	}
	p.Message = cmp.Or(p.Message, "Model trained with onering"+card.after())
	return sources, nil
}

// baseName matches the name of the model in the config of an adapter.
var baseName = regexp.MustCompile(`("base_model_name_or_path"\s*:\s*)("(?:[^"\\]|\\.)*")`)

// nameBase has the config of an adapter call its model by its name on a hub, as PEFT reads it,
// or by the last part of its path: other machines lack the folders of this one.
func (k *card) nameBase(folder string, sources []hub.Source) error {
	const config = "adapter_config.json"
	text, err := files.ReadIn(filepath.Join(folder, config), 1<<20)
	if err != nil {
		return err
	}
	m := baseName.FindSubmatch(text)
	var name string
	if m == nil || json.Unmarshal(m[2], &name) != nil {
		return nil
	}
	_, here := os.Stat(name)
	switch onHub := onHub.FindStringSubmatch(name); {
	case onHub != nil:
		name = onHub[1]
	case here == nil || filepath.IsAbs(name) || strings.HasPrefix(name, "."):
		slog.Warn("the adapter's model is a folder of this machine: say in its repository which model it goes with", "model", name)
		name = filepath.Base(name)
	}
	if k.base == "" && strings.Count(name, "/") == 1 {
		k.base = name
	}
	quoted, err := json.Marshal(name)
	at := slices.IndexFunc(sources, func(s hub.Source) bool { return s.Name == config })
	if err == nil && at >= 0 {
		sources[at] = hub.Text(config, baseName.ReplaceAllString(string(text), "${1}"+strings.ReplaceAll(string(quoted), "$", "$$")))
	}
	return err
}

// list prints the files that a push would send.
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

// push sends the files and prints the address of the repository.
func (p *pushCommand) push(c *cobra.Command, sources []hub.Source) error {
	options, shown := hubOptions(c)
	options.Revision = p.Revision
	out, err := hub.Push(c.Context(), p.To, sources, hub.PushOptions{Options: options, Private: p.Private, Message: p.Message})
	shown()
	if err != nil {
		return err
	}
	count := map[string]int{}
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
	if p.JSON {
		return cli.WriteLine(c.OutOrStdout(), out)
	}
	fmt.Fprintln(c.OutOrStdout(), out.URL)
	return nil
}

// A card is the README.md of a repository: it tells how the model was made.
type card struct {
	name, license string
	base          string // the name on a hub; "" if it has none or none is known
	step          string // the optimizer step
	adapter       bool   // the model is a LoRA adapter of base
	settings      string // the settings as TOML
}

// cardKeys are the settings that a card shows: those that say how the model was
// trained. No path of this machine is among them, nor anything that could hold a
// password. All of [objective] follows.
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
	// onHub matches a name on a hub, as run.toml states it.
	onHub    = regexp.MustCompile(`^hf:([A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*)(?:@.*)?$`)
	stepName = regexp.MustCompile(`^step-0*([0-9]+)$`)
)

// newCard describes the model of a folder; of a checkpoint it reads its run.toml.
func newCard(folder, to, license string) card {
	k := card{name: to[strings.LastIndexByte(to, '/')+1:], license: license}
	if abs, err := filepath.Abs(folder); err == nil {
		if m := stepName.FindStringSubmatch(filepath.Base(abs)); m != nil {
			k.step = m[1]
		}
	}
	of, err := policy.ReadRun(folder)
	if err == nil && (of == nil || filepath.Dir(of.File) == filepath.Clean(folder)) { // an sft folder has other settings
		return k
	}
	var config *resolved
	if err == nil {
		config, err = resolve(of.Settings)
	}
	if err != nil {
		slog.Warn("the model card goes without the settings of the run", "reason", err)
		return k
	}
	if m := onHub.FindStringSubmatch(config.Model.Path); m != nil {
		k.base = m[1]
	}
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
	k.settings = strings.TrimSpace(b.String())
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

// after returns words that name the step, for the title of a commit.
func (k card) after() string {
	if k.step == "" {
		return ""
	}
	return ", optimizer step " + k.step
}

// source returns the card as a file; a card that the repository already has stays.
func (k card) source() hub.Source {
	s := hub.Text("README.md", k.text())
	s.Default = true
	return s
}

// text returns the model card: its header for the hub, the license, and the settings of the training.
func (k card) text() string {
	var b strings.Builder
	library, what, loaders := "transformers", "model", "transformers and onering load it."
	if k.adapter {
		library, what, loaders = "peft", "LoRA adapter", "PEFT and onering put it beside its base model."
	}
	b.WriteString("---\nlibrary_name: " + library + "\npipeline_tag: text-generation\n")
	if k.base != "" {
		fmt.Fprintf(&b, "base_model: %s\n", k.base)
	}
	if k.license != "" {
		fmt.Fprintf(&b, "license: %s\n", k.license)
	}
	fmt.Fprintf(&b, "tags:\n- onering\n---\n\n# %s\n\n", k.name)
	b.WriteString("This " + what + " was trained with onering, a trainer for group-based reinforcement learning" + k.after() + ".\n")
	b.WriteString(loaders + "\n\n")
	fmt.Fprintf(&b, "Base model: %s\n\n", cmp.Or(k.base, "not stated"))
	fmt.Fprintf(&b, "License: %s\n", cmp.Or(k.license, "not stated. Look at the terms of the base model."))
	if k.settings != "" {
		fmt.Fprintf(&b, "\n## Settings of the training\n\n```toml\n%s\n```\n", k.settings)
	}
	return b.String()
}
