package tokenize_test

import (
	"fmt"
	"log"

	"onering/tokenize"
)

func Example() {
	tok, err := tokenize.Load("testdata/qwen")
	if err != nil {
		log.Fatal(err)
	}
	template, err := tokenize.ParseTemplate("r1")
	if err != nil {
		log.Fatal(err)
	}
	prompt := template.Render("What is 2+2?")
	ids := tok.Encode(prompt)
	fmt.Println(tok.Decode(ids, true) == prompt)
	fmt.Println(tok.Encode("2 + 2 = 4<|endoftext|>"))
	fmt.Printf("%q\n", tok.Decode([]int32{17, 488, 220, 17, 284, 220, 19, 1756}, true))

	chat, err := tok.Chat(tokenize.Talk(tokenize.Message{Role: "system", Content: "Be brief."}, tokenize.Message{Role: "user", Content: "2+2?"}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(chat)
	// Output:
	// true
	// [17 488 220 17 284 220 19 1756]
	// "2 + 2 = 4"
	// <|im_start|>system
	// Be brief.<|im_end|>
	// <|im_start|>user
	// 2+2?<|im_end|>
	// <|im_start|>assistant
}
