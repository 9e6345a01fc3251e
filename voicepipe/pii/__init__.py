"""Personal data in text: find e-mail addresses, numbers of telephones, cards and accounts, and replace them."""
