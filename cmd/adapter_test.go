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
	s := lora.Default()
	s.Rank, s.Alpha, s.Init = 4, 2, "gaussian"
	a, err := lora.New(s, m, args[0])
	ts.Check(err)
	w, err := a.Init(s, 3)
	ts.Check(err)
	defer w.Close()
	for i := range w.Data {
		if w.Data[i] == 0 { // B, and what lies between tensors
			w.Data[i] = float32(i%5) - 2
		}
	}
	ts.Check(a.Save(ts.MkAbs(args[1]), w, nil))
}
