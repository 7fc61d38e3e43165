package cmd

import (
	"github.com/rogpeppe/go-internal/testscript"

	"onering/models"
	"onering/models/lora"
)

// adapter MODEL DIR writes a LoRA adapter of a model whose As and Bs are not zero.
func adapter(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: adapter MODEL DIR")
	}
	m, err := models.ReadConfig(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(newAdapter(m, args[0], ts.MkAbs(args[1])))
}

// newAdapter writes a LoRA adapter of the model m, called name, to the folder dir. Its
// As and Bs are not zero.
func newAdapter(m models.Model, name, dir string) error {
	s := lora.Default()
	s.Rank, s.Alpha, s.Init = 4, 2, "gaussian"
	a, err := lora.New(s, m, name)
	if err != nil {
		return err
	}
	w, err := a.Init(s, 3)
	if err != nil {
		return err
	}
	defer w.Close()
	for i := range w.Data {
		if w.Data[i] == 0 { // B's values, and the bytes between tensors
			w.Data[i] = float32(i%5) - 2
		}
	}
	return a.Save(dir, w, nil)
}
