module onering

go 1.26.8
