package export

import (
	"fmt"

	"onering/models"
	"onering/models/optim/adamw"
)

// A builder collects the graphs of an export until one fails.
type builder struct {
	arch  models.Architecture
	files []graphFile
	err   error
}

// add appends Programs, built with the error err, to files named after them and a variant, each with
// the texts that say what it and its ports hold. After the first error it adds nothing more.
func (b *builder) add(variant string, err error, programs ...models.Program) {
	if b.err == nil {
		b.err = err
	}
	for _, p := range programs {
		if b.err != nil {
			return
		}
		f := graphFile{File: p.Name + variant + ".onnx", Program: p.Name, Doc: purposes[nameWithoutForm(p.Name)], Alias: p.Alias, Options: p.Options}
		if f.Doc == "" {
			b.err = fmt.Errorf("export: nothing says what %s computes", p.Name)
			return
		}
		const inputs, outputs = false, true
		if f.Inputs, b.err = portsOf(p, p.Inputs, inputs); b.err != nil {
			return
		}
		if f.Outputs, b.err = portsOf(p, p.Outputs, outputs); b.err != nil {
			return
		}
		model := p.ONNX()
		model.Doc, model.Graph.Doc = f.Doc, f.Doc
		for i, in := range f.Inputs {
			model.Graph.Inputs[i].Doc = in.Doc
		}
		for i, out := range f.Outputs {
			model.Graph.Outputs[i].Doc = out.Doc
		}
		f.onnx = model.Encode()
		b.files = append(b.files, f)
	}
}

// sampling adds prefill and every form of decode and sample.
func (b *builder) sampling(forms []models.Form) {
	p, err := b.arch.Prefill()
	b.add("", err, p)
	for _, form := range forms {
		p, err := b.arch.Decode(form)
		b.add("", err, p)
		for _, choice := range models.Choices {
			p, err := b.arch.Sample(choice, form)
			b.add(form.Suffix(), err, p)
		}
	}
}

// fullLayer and fullHead are in the names of the graphs that store all that backward reads.
const fullLayer, fullHead = ".stash2", ".stash3"

// training adds the layers of each kind, in the given number of blocks and with and without what backward
// reads stored, the norm, every form of the head, the rows of the embedding, and the optimizer.
func (b *builder) training(blocks int) {
	for i, k := range b.arch.Geometry().Kinds {
		if k.Program != i {
			continue // an earlier kind has the same
		}
		for _, name := range []string{".stash0", fullLayer} {
			forward, backward, err := b.arch.Layer(i, name == fullLayer, blocks)
			b.add(models.OfKind("", i)+name, err, forward, backward)
		}
	}
	forward, backward, err := b.arch.Norm()
	b.add("", err, forward, backward)
	forward, target, backward, err := b.arch.Head(models.HeadForm{})
	b.add("", err, forward, target, backward)
	_, _, backward, err = b.arch.Head(models.HeadForm{EntropyGradient: true})
	b.add(".entropy", err, backward)
	forward, _, backward, err = b.arch.Head(models.HeadForm{Full: true})
	b.add(fullHead, err, forward, backward)
	_, _, backward, err = b.arch.Head(models.HeadForm{Full: true, EntropyGradient: true})
	b.add(fullHead+".entropy", err, backward)
	forward, _, backward, err = b.arch.Head(models.HeadForm{Kept: true})
	b.add("", err, forward, backward)
	forward, _, _, err = b.arch.Head(models.HeadForm{Kept: true, Squares: true})
	b.add("", err, forward)
	rows, err := b.arch.Rows()
	b.add("", err, rows.Gather, rows.Add, rows.Pair)
	if rows.Embed.Name != rows.Gather.Name { // else they are the same graphs
		b.add("", err, rows.Embed, rows.Learn)
	}
	norm2, err := b.arch.GradNorm()
	b.add("", err, norm2)
	step, err := adamw.Default().Program(nil, b.arch.Geometry().Compute) // nil: for a slice of any elements
	b.add("", err, step)
}

// buildGraphs builds every variant of every Program.
func buildGraphs(arch models.Architecture, o Options) ([]graphFile, error) {
	forms := models.Forms
	if o.Device != "cpu" || arch.Geometry().Compute != models.F32 {
		forms = []models.Form{models.Direct} // the other forms are for a CPU's matrix product
	}
	b := builder{arch: arch}
	b.sampling(forms)
	b.training(o.Blocks)
	if b.err != nil {
		return nil, b.err
	}
	seen := map[string]bool{}
	for _, f := range b.files {
		if seen[f.File] {
			return nil, fmt.Errorf("export: two graphs are called %s", f.File)
		}
		seen[f.File] = true
	}
	return b.files, nil
}
